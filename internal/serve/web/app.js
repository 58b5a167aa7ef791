// The page: which view is shown, and which views the model can fill.

import { call, longest } from './api.js';
import { id, count, explain } from './dom.js';
import { startWrite } from './write.js';
import { startSearch } from './search.js';
import { startClassify } from './classify.js';
import { startMaps } from './maps.js';
import { startSpeed } from './speed.js';

const views = ['write', 'search', 'classify', 'maps', 'speed'];
const shown = {}; // called with the rest of the address when a view opens
let first = 'write';

function route() {
  const [name, ...rest] = location.hash.slice(1).split('/');
  const view = views.includes(name) ? name : first;
  for (const v of views) {
    id('view-' + v).hidden = v !== view;
    const link = document.querySelector(`nav a[data-view=${v}]`);
    if (v === view) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  document.title = document.querySelector(`nav a[data-view=${view}]`).firstChild.textContent + ' · farfield';
  if (shown[view]) shown[view](rest);
}

// facts says in one line what the model is.
function facts(m) {
  const f = m.farfield || {};
  const list = [f.family || f.kind, `${count(f.layers)} layers of ${count(f.heads)} heads`, `width ${count(f.width)}`];
  if (f.has_sessions) list.push(f.state === 'fixed' ? 'state of fixed size' : 'state grows with the text');
  const most = longest(f);
  list.push(most ? `texts up to ${count(most)} tokens` : 'texts of any length');
  return list.filter(Boolean).join(' · ');
}

// cannot shows why the model has no use for a view.
function cannot(view, reason) {
  const section = id('view-' + view);
  const notice = section.querySelector('[data-cannot]');
  notice.textContent = reason;
  notice.hidden = false;
  for (const part of section.querySelectorAll('[data-can]')) part.hidden = true;
  const link = document.querySelector(`nav a[data-view=${view}]`);
  link.classList.add('off');
  const unseen = document.createElement('span');
  unseen.className = 'unseen';
  unseen.textContent = ' (not with this model)';
  link.append(unseen);
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
  const name = document.createElement('strong');
  name.textContent = model.id;
  id('model').replaceChildren(name, ' ' + facts(model));

  const classes = f.classes || [];
  first = f.has_sessions ? 'write' : classes.length ? 'classify' : 'search';
  if (f.has_sessions) shown.write = startWrite(model);
  else cannot('write', 'This model reads whole texts at once and continues none, so it has no sessions. A decoder does.');
  if (f.embeds) startSearch(model);
  else cannot('search', 'This model gives no vectors of texts. An encoder with pooling, such as all-MiniLM-L6-v2, does.');
  if (classes.length) startClassify(model);
  else cannot('classify', 'This model has no classes. A classifier that farfield train made, or a published one, has.');
  if (f.has_maps) startMaps(model);
  else cannot('maps', 'This model has no attention maps: it mixes its tokens otherwise.');
  if (f.has_sessions || f.embeds || classes.length) startSpeed(model);
  else cannot('speed', 'This model has neither sessions nor vectors nor classes that could be timed.');

  window.addEventListener('hashchange', () => {
    route();
    id('main').focus({ preventScroll: true });
  });
  route();
  document.documentElement.dataset.ready = 'true';
}

start();
