// Attention maps: the weights of each head, in the text and as pictures.

import { call } from './api.js';
import { h, s, id, count, percent, explain } from './dom.js';
import { bar } from './chart.js';

const levels = 8;
let model, result = null, head = -1, token = 0; // head -1: the mean of all

// levelOf is the level of a weight beside the greatest of its row. The power shows small weights beside large ones.
const levelOf = (weight, top) => Math.round(levels * (weight / (top || 1)) ** 0.7);

// map draws weights [N][N] as one path per level.
function map(weights, label) {
  const n = weights.length, paths = Array.from({ length: levels + 1 }, () => []);
  for (let i = 0; i < n; i++) {
    const top = Math.max(...weights[i]);
    for (let j = 0; j < n;) {
      const level = levelOf(weights[i][j], top);
      let end = j + 1;
      while (end < n && levelOf(weights[i][end], top) === level) end++;
      if (level) paths[level].push(`M${j} ${i}h${end - j}v1h${j - end}z`);
      j = end;
    }
  }
  return s('svg', { class: 'map', viewBox: `0 0 ${n} ${n}`, role: 'img', 'aria-label': label },
    s('rect', { class: 'map-ground', width: n, height: n }),
    ...paths.map((p, l) => (p.length ? s('path', { class: 'l' + l, d: p.join('') }) : null)));
}

function mean() {
  const n = result.tokens.length;
  return Array.from({ length: n }, (_, i) => Array.from({ length: n }, (_, j) => result.maps.reduce((sum, m) => sum + m[i][j], 0) / result.maps.length));
}

const chosen = () => (head < 0 ? result.mean : result.maps[head]);
const headName = () => (head < 0 ? 'mean of all heads' : `head ${head + 1}`);

// visible writes a token so that a space or a break is seen.
const visible = (t) => (t === '' ? '·' : t.replace(/\n/g, '⏎').replace(/\t/g, '⇥').replace(/^[ ▁]+$/, '␣'));

function drawTokens() {
  const row = chosen()[token], top = Math.max(...row);
  id('tokens').replaceChildren(...result.tokens.map((t, j) => {
    const level = levelOf(row[j], top);
    return h('span', {
      id: 'token-' + j, role: 'option', class: `token l${level}` + (j === token ? ' here' : ''), 'aria-selected': j === token ? 'true' : 'false',
      title: `${visible(t)}: ${percent(row[j])}`, onclick: () => choose(j),
    }, visible(t));
  }));
  id('tokens').setAttribute('aria-activedescendant', 'token-' + token);
  const best = row.map((w, j) => [w, j]).sort((a, b) => b[0] - a[0]).slice(0, 3).filter(([w]) => w > 0.0005);
  id('tokens-note').textContent = `“${visible(result.tokens[token])}” (token ${token + 1}), ${headName()}: ` +
    best.map(([w, j]) => `“${visible(result.tokens[j])}” ${percent(w)}`).join(', ') + '.';
}

function drawMap() {
  const n = result.tokens.length;
  const big = map(chosen(), `Weights of layer ${result.layer + 1}, ${headName()}: one row for each token that looks, one column for each that it looks at`);
  big.append(s('rect', { class: 'map-row', x: 0, y: token, width: n, height: 1 }));
  big.addEventListener('click', (e) => {
    const box = big.getBoundingClientRect();
    choose(Math.min(n - 1, Math.floor(((e.clientY - box.top) / box.height) * n)));
  });
  id('bigmap').replaceChildren(big);
  id('bigmap-caption').textContent = `Layer ${result.layer + 1}, ${headName()}. Each row is a token that looks, each column one that it looks at, from the first to the last. Each row is coloured by its own greatest weight. The row of the chosen token is framed.`;
}

function choose(j) {
  token = Math.min(Math.max(j, 0), result.tokens.length - 1);
  drawTokens();
  drawMap();
  id('token-before').disabled = token === 0;
  id('token-next').disabled = token === result.tokens.length - 1;
}

function drawHeads() {
  const button = (k, weights, name) => h('button', {
    type: 'button', class: 'head', 'aria-pressed': head === k ? 'true' : 'false',
    onclick: () => {
      head = k;
      for (const b of id('heads').children) b.setAttribute('aria-pressed', b.dataset.head === String(k) ? 'true' : 'false');
      choose(token);
    }, 'data-head': k,
  }, map(weights, ''), h('span', {}, name));
  id('heads').replaceChildren(button(-1, result.mean, 'mean'), ...result.maps.map((m, k) => button(k, m, String(k + 1))));
  for (const svg of id('heads').querySelectorAll('svg')) {
    svg.removeAttribute('role');
    svg.setAttribute('aria-hidden', 'true');
  }
  // In a short text all is near.
  const isFar = result.far.some((share) => share > 0.02), longest = Math.max(...result.distance, 1e-9);
  for (const cell of document.querySelectorAll('#shares .nearfar')) cell.hidden = !isFar;
  id('shares').tBodies[0].replaceChildren(...result.maps.map((_, k) => h('tr', {},
    h('th', { scope: 'row' }, String(k + 1)), h('td', {}, result.distance[k].toFixed(1)),
    isFar && h('td', {}, percent(result.near[k])), isFar && h('td', {}, percent(result.far[k])),
    h('td', { class: 'drawn' }, isFar ? bar([['a', result.near[k]], ['b', result.far[k]]]) : bar([['a', result.distance[k] / longest]])))));
  id('maps-fine').textContent = isFar ? `Near: fewer than ${count(result.window)} tokens away. Far: the others. Shares are means over all tokens.` : '';
}

async function draw() {
  const status = id('maps-status');
  status.textContent = 'Reading…';
  try {
    result = await call('POST', '/v1/maps', { text: id('maps-text').value, layer: Number(id('maps-layer').value), model: model.id });
    // A mechanism may have weights below 0; the pictures show their size.
    result.maps = result.maps.map((m) => m.map((row) => row.map(Math.abs)));
    result.mean = mean();
    if (head >= result.maps.length) head = -1;
    token = result.tokens.length - 1;
    id('maps-result').hidden = false;
    drawHeads();
    choose(token);
    status.textContent = `${count(result.tokens.length)} tokens, ${count(result.maps.length)} heads.`;
  } catch (e) {
    status.textContent = explain(e);
  }
}

/** startMaps prepares the view and returns what draws its example when it opens. */
export function startMaps(m) {
  model = m;
  const layers = m.farfield.layers || 1;
  id('maps-layer').replaceChildren(...Array.from({ length: layers }, (_, l) => h('option', { value: l }, `${l + 1} of ${layers}`)));
  id('maps-form').addEventListener('submit', (e) => {
    e.preventDefault();
    if (id('maps-text').value) draw();
  });
  id('maps-layer').addEventListener('change', () => { if (result) draw(); });
  id('token-before').addEventListener('click', () => choose(token - 1));
  id('token-next').addEventListener('click', () => choose(token + 1));
  id('tokens').addEventListener('keydown', (e) => {
    const next = { ArrowRight: token + 1, ArrowLeft: token - 1, ArrowDown: token + 10, ArrowUp: token - 10, Home: 0, End: Infinity }[e.key];
    if (next === undefined || !result) return;
    e.preventDefault();
    choose(next === Infinity ? result.tokens.length - 1 : next);
  });
  let isOpened = false;
  return () => {
    if (!isOpened) draw();
    isOpened = true;
  };
}
