// The page: which view is shown, and which views the model can fill.

import { call, limitOf } from './api.js';
import { h, id, count, explain } from './dom.js';
import { startChat } from './chat.js';
import { startWrite } from './write.js';
import { startSearch } from './search.js';
import { startClassify } from './classify.js';
import { startMaps } from './maps.js';
import { startSpeed } from './speed.js';

const views = ['chat', 'write', 'search', 'classify', 'maps', 'speed'];
const shown = {}; // called with the rest of the address when a view opens
let first = 'write';

const linkOf = (view) => document.querySelector(`.views a[data-view=${view}]`);

function route() {
  const [name, ...rest] = location.hash.slice(1).split('/');
  const view = views.includes(name) ? name : first;
  for (const v of views) {
    id('view-' + v).hidden = v !== view;
    if (v === view) linkOf(v).setAttribute('aria-current', 'page');
    else linkOf(v).removeAttribute('aria-current');
  }
  document.title = linkOf(view).textContent + ' · farfield';
  if (shown[view]) shown[view](rest);
}

// facts says in one line what the model is.
function facts(m) {
  const f = m.farfield, list = [f.family === 'farfield' ? 'trained by farfield' : f.family || f.kind, f.layers === 1 ? '1 layer' : `${count(f.layers)} layers`, `width ${count(f.width)}`];
  if (f.has_sessions && f.state === 'fixed') list.push('memory of fixed size');
  const most = limitOf(f);
  if (most) list.push(`texts up to ${count(most)} tokens`);
  return list.filter(Boolean).join(' · ');
}

// cannot shows why the model has no use for a view, and moves its link to the foot of the page.
function cannot(view, reason) {
  const section = id('view-' + view);
  const notice = section.querySelector('[data-cannot]');
  notice.textContent = reason;
  notice.hidden = false;
  for (const part of section.querySelectorAll('[data-can]')) part.hidden = true;
  linkOf(view).hidden = true;
  id('others').hidden = false;
  id('others').append(' ', h('a', { href: '#' + view, class: 'other' }, linkOf(view).textContent));
}

async function start() {
  let model;
  try {
    model = (await call('GET', '/v1/models')).data[0];
    if (!model) throw new Error('the server has no model');
  } catch (e) {
    id('model').textContent = explain(e);
    id('model').classList.add('bad');
    return;
  }
  const f = model.farfield || (model.farfield = {});
  id('model').replaceChildren(h('strong', {}, model.id), ' ' + facts(model));

  const classes = f.classes || [];
  first = f.has_chat ? 'chat' : f.has_sessions ? 'write' : classes.length ? 'classify' : 'search';
  if (f.has_chat) startChat(model);
  else cannot('chat', f.has_sessions ? 'This model has no chat template that the server reads: it continues texts, in the view Write.' : 'This model continues no texts. A decoder with a chat template does.');
  if (f.has_sessions) shown.write = startWrite(model);
  else cannot('write', 'This model reads whole texts at once and continues none. A decoder, such as SmolLM, does.');
  if (f.embeds) startSearch(model);
  else cannot('search', 'This model gives no vectors of texts. An encoder with pooling, such as all-MiniLM-L6-v2, does.');
  if (classes.length) startClassify(model);
  else cannot('classify', 'This model has no classes. A classifier that farfield train made, or a published one, has.');
  if (f.has_maps) shown.maps = startMaps(model);
  else cannot('maps', 'This model has no attention maps: it mixes its tokens in another way.');
  if (f.has_sessions || f.embeds || classes.length) shown.speed = startSpeed(model);
  else cannot('speed', 'This model has no sessions, vectors or classes whose time could be measured.');

  document.querySelector('.views').hidden = false;
  window.addEventListener('hashchange', () => {
    route();
    id('main').focus({ preventScroll: true });
  });
  route();
  document.documentElement.dataset.ready = 'true';
}

start();
