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
  const lines = text.replace(/\r\n?/g, '\n').replace(/(.{60})\n(?=[\p{L}\p{N}("“`*])/gu, '$1 '); // a long line goes on in the next
  for (const paragraph of lines.split(/\n\s*\n/)) {
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

// embed returns vectors of length 1, one per text. names are those of prompts that a model may have for such texts.
async function embed(texts, names, signal) {
  const request = { input: texts, model: model.id, encoding_format: 'float' };
  const prompt = names.find((name) => model.farfield.prompts?.includes(name));
  if (prompt) request.prompt_name = prompt;
  const answer = await call('POST', '/v1/embeddings', request, signal);
  return answer.data.sort((a, b) => a.index - b.index).map((d) => {
    const v = Float32Array.from(d.embedding);
    const norm = Math.hypot(...v) || 1;
    return v.map((x) => x / norm);
  });
}

const ofQuery = ['query', 'search_query'], ofPassage = ['document', 'passage', 'search_document'];

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

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
      id('index-label').textContent = `Reading passages: ${count(done)} of ${count(list.length)}`;
      const got = await embed(part.map((p) => p.text), ofPassage, stop.signal);
      passages.push(...part);
      vectors.push(...got);
      done += part.length;
    }
    const seconds = (performance.now() - began) / 1000;
    id('index-status').textContent = `${count(passages.length)} passages are ready to be searched. ${count(done)} took ${seconds.toFixed(1)} s.`;
  } catch (e) {
    id('index-status').textContent = `${explain(e)} ${count(passages.length)} passages are ready to be searched.`;
  }
  stop = null;
  id('indexing').hidden = true;
  drawFiles();
}

// drawFiles says what is there to search, in place of what could be.
function drawFiles() {
  const files = new Set(passages.map((p) => p.file));
  id('drop').classList.toggle('filled', passages.length > 0);
  id('clear').hidden = !passages.length;
  id('drop-note').textContent = passages.length
    ? `${count(passages.length)} passages of ${[...files].slice(0, 5).join(', ')}${files.size > 5 ? ` and ${count(files.size - 5)} more` : ''}`
    : 'Plain text in UTF-8, at most 8 MB a file and 4,000 passages.';
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
      left.push(`${file.name} is no text in UTF-8`);
    }
  }
  const room = await index(list);
  if (list.length > room) left.push(`only ${count(room)} of ${count(list.length)} passages fit`);
  if (left.length) id('index-status').textContent += ` Left out: ${left.join('; ')}.`;
  if (list.length) id('query').focus();
}

// countClear returns how many of some scores, in descending order, stand out from the ordinary passage. The best one
// has to be further above the median than chance brings the best of so many, and the others at least half as far.
function countClear(scores) {
  const median = (list) => list[list.length >> 1];
  if (scores.length < 4) return scores.length;
  const middle = median(scores), spread = 1.4826 * median(scores.map((s) => Math.abs(s - middle)).sort((a, b) => a - b));
  if (scores[0] - middle < (Math.sqrt(2 * Math.log(scores.length)) + 1) * spread) return 0;
  return scores.filter((s) => s >= (scores[0] + middle) / 2).length;
}

// sentences cuts a passage behind its sentences and lines.
function sentences(text) {
  if (!Intl.Segmenter) return text.match(/[^.?!\n]*[.?!\n]*\s*/g).filter((s) => s);
  return [...new Intl.Segmenter(undefined, { granularity: 'sentence' }).segment(text)].map((s) => s.segment);
}

let asked = 0; // searches, of which the last is shown

// markNearest marks the sentence that is nearest to the query in each passage with several.
async function markNearest(hits, query) {
  const own = asked, all = [];
  for (const { passage, node } of hits) {
    const list = sentences(passage.text);
    if (list.length > 1) for (const text of list) if ((text.match(/\p{L}{2,}/gu) || []).length > 2) all.push({ node, list, text });
  }
  const vectorsOf = [];
  for (let i = 0; i < all.length && own === asked; i += batch) vectorsOf.push(...await embed(all.slice(i, i + batch).map((s) => s.text), ofPassage));
  if (own !== asked) return;
  const best = new Map();
  all.forEach((s, i) => {
    const score = dot(query, vectorsOf[i]);
    if (!(best.get(s.node)?.score >= score)) best.set(s.node, { score, ...s });
  });
  for (const [node, { list, text }] of best) {
    const at = list.indexOf(text), trimmed = text.trimEnd();
    node.replaceChildren(list.slice(0, at).join(''), h('mark', {}, trimmed), text.slice(trimmed.length), list.slice(at + 1).join(''));
  }
}

async function ask(query) {
  const status = id('index-status'), own = ++asked;
  if (!passages.length) {
    status.textContent = 'There is nothing to search yet: choose files, or use the example.';
    return;
  }
  try {
    const [q] = await embed([query], ofQuery);
    if (own !== asked) return;
    const ranked = vectors.map((v, i) => [dot(q, v), i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
    const clear = countClear(ranked.map(([score]) => score));
    let shown = 0;
    id('hits').replaceChildren();
    // show adds hits up to a number, which are weak behind those that stand out.
    const show = async (upTo) => {
      const added = ranked.slice(shown, upTo).map(([score, i], k) => {
        const passage = passages[i], node = h('p', { class: 'passage' }, passage.text);
        id('hits').append(h('li', { class: shown + k < clear ? null : 'weak' }, h('p', { class: 'where' }, h('span', { class: 'score' }, score.toFixed(2).replace('-0.00', '0.00')), bar([['a', Math.max(0, score)]]),
          h('span', { class: 'file' }, `${passage.file}, passage ${passage.place}`)), node));
        return { passage, node };
      });
      shown += added.length;
      const next = Math.min(shownHits, ranked.length - shown);
      id('more').hidden = next < 1;
      id('more').textContent = `Show the next ${next}`;
      id('more').onclick = () => show(shown + next);
      await markNearest(added.filter((_, k) => shown - added.length + k < clear), q).catch(() => {}); // marks are a help
    };
    const most = Math.min(clear || 5, shownHits);
    const found = clear === ranked.length ? `All ${count(clear)} passages, the nearest first.`
      : clear ? `${count(clear)} of ${count(ranked.length)} passages ${clear === 1 ? 'stands' : 'stand'} out${clear > most ? `; the nearest ${most} are shown` : ''}.`
        : `No passage stands out clearly. These ${Math.min(most, ranked.length)} of ${count(ranked.length)} are the nearest.`;
    status.textContent = found + ' The number is the similarity, at most 1.';
    await show(most);
  } catch (e) {
    status.textContent = explain(e);
  }
}

/** startSearch prepares the view. */
export function startSearch(m) {
  model = m;
  if (m.farfield.vector_note) {
    id('search-note').textContent = 'This model was trained to continue texts, not to compare them: what it finds says little about meaning. An encoder such as all-MiniLM-L6-v2 searches well.';
    id('search-note').hidden = false;
  }
  const drop = id('drop');
  id('files').addEventListener('change', async (e) => {
    await take([...e.target.files]);
    e.target.value = '';
  });
  id('sample').addEventListener('click', async () => {
    const list = sample.map((text, i) => ({ file: 'example', place: i + 1, text }));
    await index(list, () => passages.some((p) => p.file === 'example'));
    if (!id('query').value) id('query').value = 'How do insects tell each other where food is?';
    await ask(id('query').value);
  });
  id('clear').addEventListener('click', () => {
    stop?.abort();
    running = running.then(() => {
      passages = [];
      vectors = [];
      asked++;
      drawFiles();
      id('hits').replaceChildren();
      id('more').hidden = true;
      id('index-status').textContent = '';
    });
    id('files').focus();
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
