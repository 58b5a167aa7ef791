// Search: files are cut into passages, the server gives their vectors, and the cosines
// are taken here.

import { call } from './api.js';
import { h, id, count, explain, border } from './dom.js';
import { bar } from './chart.js';

const maxFile = 8 << 20, maxPassages = 4000, length = 700, batch = 16, shownHits = 10;

const sample = [
  'The lighthouse on the northern cape was switched from oil to electricity in 1931. Its keeper stayed for another thirty years.',
  'To bake rye bread, feed the sourdough the evening before. In the morning, mix it with flour, salt and warm water, and let it rise for three hours.',
  'A violin is tuned in fifths: G, D, A and E. The player turns the pegs first and then the fine tuners at the tailpiece.',
  'The tram to the harbour leaves every twelve minutes. After midnight a night bus takes the same way, once an hour.',
  'Honeybees show each other the way to flowers by a dance. Its angle to the vertical is the angle between sun and flowers.',
  'Glaciers in the valley have lost a third of their ice since 1980. Their melt water feeds the river in the dry months.',
  'The contract may be ended by either side with notice of three months. Deposits are paid back within two weeks.',
  'To change a bicycle tube, take out the wheel, lever the tyre off the rim, and look for glass before the new tube goes in.',
  'In chess, a passed pawn has no pawn of the opponent before it. In the endgame it decides many games.',
  'The museum opens at ten. Children under twelve enter free, and on the first Sunday of a month everyone does.',
];

let model, passages = [], vectors = [], stop = null;
let running = Promise.resolve(); // the last turn of embedding

// cut makes passages of about length characters, at paragraphs, sentences or words.
function cut(text) {
  const list = [];
  let run = '';
  const push = () => {
    if (run.trim()) list.push(run.trim());
    run = '';
  };
  for (const paragraph of text.replace(/\r\n?/g, '\n').split(/\n\s*\n/)) {
    if (run && run.length + paragraph.length > length) push();
    let rest = paragraph;
    while (rest.length > length) {
      const head = rest.slice(0, length);
      let end = Math.max(head.lastIndexOf('. '), head.lastIndexOf('? '), head.lastIndexOf('! '), head.lastIndexOf('。')) + 1;
      if (end < length / 3) end = Math.max(head.lastIndexOf(' '), head.lastIndexOf('\n'));
      if (end < length / 3) end = border(rest, length);
      run += rest.slice(0, end);
      push();
      rest = rest.slice(end);
    }
    run += (run && rest ? '\n\n' : '') + rest;
  }
  push();
  return list;
}

// embed returns vectors of length 1, one per text.
async function embed(texts, signal) {
  const answer = await call('POST', '/v1/embeddings', { input: texts, model: model.id, encoding_format: 'float' }, signal);
  return answer.data.sort((a, b) => a.index - b.index).map((d) => {
    const v = Float32Array.from(d.embedding);
    const norm = Math.hypot(...v) || 1;
    return v.map((x) => x / norm);
  });
}

// index embeds the passages that fit, behind those that are being embedded. isKnown, asked when
// its turn comes, leaves them out. It returns how many fit.
function index(list, isKnown = () => false) {
  const turn = running.then(async () => {
    const room = Math.max(0, maxPassages - passages.length);
    if (!isKnown()) await embedAll(list.slice(0, room));
    return room;
  });
  running = turn.catch(() => {});
  return turn;
}

async function embedAll(list) {
  stop = new AbortController();
  const began = performance.now();
  const progress = id('index-bar');
  id('indexing').hidden = false;
  progress.max = list.length;
  let done = 0;
  try {
    while (done < list.length) {
      const part = list.slice(done, done + batch);
      progress.value = done;
      id('index-label').textContent = `Embedding passages: ${count(done)} of ${count(list.length)}`;
      const got = await embed(part.map((p) => p.text), stop.signal);
      passages.push(...part);
      vectors.push(...got);
      done += part.length;
    }
    const seconds = (performance.now() - began) / 1000;
    id('index-status').textContent = `${count(passages.length)} passages are ready, ${count(done)} embedded in ${seconds.toFixed(1)} s.`;
  } catch (e) {
    id('index-status').textContent = `${explain(e)} ${count(passages.length)} passages are ready.`;
  }
  stop = null;
  id('indexing').hidden = true;
}

async function take(files) {
  const list = [], left = [];
  for (const file of files) {
    if (file.size > maxFile) {
      left.push(`${file.name} is larger than 8 MB`);
      continue;
    }
    try {
      const text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
      cut(text).forEach((t, i) => list.push({ file: file.name, place: i + 1, text: t }));
    } catch {
      left.push(`${file.name} is no UTF-8 text`);
    }
  }
  const room = await index(list);
  if (list.length > room) left.push(`only ${count(room)} of ${count(list.length)} passages fit`);
  if (left.length) id('index-status').textContent += ` Left out: ${left.join('; ')}.`;
  if (list.length) id('query').focus();
}

// marked is text with the words of the query marked.
function marked(text, query) {
  const words = query.toLowerCase().match(/[\p{L}\p{N}]{3,}/gu) || [];
  const nodes = [];
  let from = 0;
  for (const m of text.matchAll(/[\p{L}\p{N}]+/gu)) {
    if (!words.includes(m[0].toLowerCase())) continue;
    nodes.push(text.slice(from, m.index), h('mark', {}, m[0]));
    from = m.index + m[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

async function ask(query) {
  const status = id('index-status');
  if (!passages.length) {
    status.textContent = 'There is nothing to search yet: drop files, or use the example.';
    return;
  }
  try {
    const [q] = await embed([query]);
    const began = performance.now();
    const scores = vectors.map((v, i) => {
      let sum = 0;
      for (let j = 0; j < q.length; j++) sum += q[j] * v[j];
      return [sum, i];
    }).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, shownHits);
    const ms = performance.now() - began;
    id('hits').replaceChildren(...scores.map(([score, i]) => {
      const p = passages[i];
      return h('li', {}, h('p', { class: 'where' }, h('span', { class: 'score' }, score.toFixed(3)), bar([['a', Math.max(0, score)]]),
        h('span', { class: 'file' }, `${p.file}, passage ${p.place}`)), h('p', { class: 'passage' }, ...marked(p.text, query)));
    }));
    status.textContent = `The ${scores.length} nearest of ${count(passages.length)} passages, compared in ${ms.toFixed(1)} ms.`;
  } catch (e) {
    status.textContent = explain(e);
  }
}

/** startSearch prepares the view. */
export function startSearch(m) {
  model = m;
  const drop = id('drop');
  id('files').addEventListener('change', async (e) => {
    await take([...e.target.files]);
    e.target.value = '';
  });
  id('sample').addEventListener('click', async () => {
    const list = sample.map((text, i) => ({ file: 'example', place: i + 1, text }));
    await index(list, () => passages.some((p) => p.file === 'example'));
    if (!id('query').value) id('query').value = 'How do insects tell each other where food is?';
    id('query').focus();
  });
  id('index-stop').addEventListener('click', () => stop?.abort());
  id('search-form').addEventListener('submit', (e) => {
    e.preventDefault();
    const query = id('query').value.trim();
    if (query) ask(query);
  });
  // A file dropped beside the field would leave the page.
  for (const name of ['dragover', 'drop']) window.addEventListener(name, (e) => e.preventDefault());
  drop.addEventListener('dragover', () => drop.classList.add('near'));
  drop.addEventListener('dragleave', () => drop.classList.remove('near'));
  drop.addEventListener('drop', (e) => {
    drop.classList.remove('near');
    take([...e.dataTransfer.files]);
  });
}
