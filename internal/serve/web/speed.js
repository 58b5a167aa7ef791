// Time over length, measured live. Texts are drawn at random, so that no prefix of
// them is known to the server.

import { call, limitOf } from './api.js';
import { h, id, count, short, duration, explain, swap } from './dom.js';
import { lineChart } from './chart.js';

const drawn = 8; // tokens by which the time of the next one is measured
const letters = 'abcdefghijklmnopqrstuvwxyz';

let model, stop = null, left = []; // sessions that could not be deleted

// words are n random words, which have about n tokens or more.
function words(n) {
  const list = [];
  for (let i = 0; i < n; i++) {
    let word = '';
    for (let k = 2 + Math.floor(4 * Math.random()); k > 0; k--) word += letters[Math.floor(26 * Math.random())];
    list.push(word);
  }
  return list.join(' ');
}

// timeSession reads n random ids, then draws. It returns [tokens, ms, ms of a token].
async function timeSession(n, signal) {
  const vocab = model.farfield.vocab, low = Math.min(16, vocab >> 2);
  const ids = Array.from({ length: n }, () => low + Math.floor((vocab - low) * Math.random()));
  let began = performance.now();
  const made = await call('POST', '/v1/sessions', { ids }, signal);
  const reading = performance.now() - began;
  const path = '/v1/sessions/' + encodeURIComponent(made.id);
  try {
    const draw = { max_tokens: 1, temperature: 1, seed: 1 };
    await call('POST', path + '/generate', draw, signal);
    began = performance.now();
    await call('POST', path + '/generate', { ...draw, max_tokens: drawn }, signal);
    return [made.tokens, reading, (performance.now() - began) / drawn];
  } finally {
    await drop(path).catch((e) => left.push(`${made.id.slice(0, 8)} (${e.message})`));
  }
}

// drop deletes a session. A stopped request holds it until its step ends (409), and rates are limited (429).
async function drop(path) {
  for (let wait = 0.2; ; wait *= 2) {
    try {
      return await call('DELETE', path);
    } catch (e) {
      if (e.status === 404) return null;
      if (wait > 5 || (e.status !== 409 && e.status !== 429)) throw e;
      await new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(wait, e.retryAfter)));
    }
  }
}

// timeWhole times a model that reads whole texts. It returns [tokens, ms, 0, whether the text was cut].
async function timeWhole(n, signal) {
  const input = words(Math.max(1, Math.round(n / timeWhole.rate)));
  const began = performance.now();
  const f = model.farfield;
  const answer = f.embeds
    ? await call('POST', '/v1/embeddings', { input, model: model.id, encoding_format: 'float' }, signal)
    : await call('POST', '/v1/classify', { input, model: model.id }, signal);
  const ms = performance.now() - began;
  const tokens = f.embeds ? answer.usage.prompt_tokens : answer.data[0].tokens; // of a class: before the cut
  const { truncated } = answer.data[0];
  if (!truncated && tokens >= n / 2) timeWhole.rate *= tokens / n;
  return [tokens, ms, 0, truncated];
}
timeWhole.rate = 2.5; // tokens of a word; set by what is measured

// exponent is the slope of the last half of log time over log length.
function exponent(points) {
  const last = points.slice(Math.floor(points.length / 2)).map(([n, t]) => [Math.log(n), Math.log(t)]);
  if (last.length < 2) return null;
  const mx = last.reduce((a, p) => a + p[0], 0) / last.length, my = last.reduce((a, p) => a + p[1], 0) / last.length;
  const cov = last.reduce((a, p) => a + (p[0] - mx) * (p[1] - my), 0), dev = last.reduce((a, p) => a + (p[0] - mx) ** 2, 0);
  return dev ? cov / dev : null;
}

// guide goes on from a point as a power of the length, up to the length and time of its end.
function guide([n0, t0], power, max, top) {
  const end = Math.min(max, n0 * (top / t0) ** (1 / power));
  return [[n0, t0], [end, t0 * (end / n0) ** power]]; // straight: both axes are logarithmic
}

function plot(host, points, max, log) {
  const n0 = points[0][0], times = points.map((p) => p[1]);
  const x = { name: 'tokens', log: true, base: 2, min: n0, max: Math.max(max, n0 * 2), format: short };
  const series = [{ name: 'measured', kind: 'a', points, dots: true }];
  let y;
  if (log) {
    const low = Math.min(...times) / 1.5;
    y = { name: 'time', log: true, base: 10, min: low, max: Math.max(Math.max(...times) * 4, low * 100), format: duration };
    if (points.length > 4) { // short texts cost the request more than the model
      const from = points[3];
      series.unshift({ name: 'linear', kind: 'c', dashed: true, points: guide(from, 1, x.max, y.max) },
        { name: 'quadratic', kind: 'b', dashed: true, points: guide(from, 2, x.max, y.max) });
    }
  } else y = { name: 'time of a token', max: Math.max(...times) * 1.6, format: duration };
  lineChart(host, { label: `Time: ${points.map(([n, t]) => `${count(n)} tokens ${duration(t)}`).join(', ')}`, x, y, series, table: true });
}

const glance = 4000; // milliseconds that the view measures when it opens

// measure times longer and longer texts, until the time is over.
async function measure(time = Infinity) {
  const f = model.farfield, max = Number(id('speed-max').value), status = id('speed-status');
  const reading = [], next = [];
  stop = new AbortController();
  left = [];
  swap(id('speed-stop'), id('speed-start'));
  id('decode-card').hidden = !f.has_sessions;
  const timeText = f.has_sessions ? timeSession : timeWhole, end = performance.now() + time;
  try {
    for (let i = 0; i < 4; i++) await timeText(Math.min(64, max), stop.signal); // weights come into the caches
    let isCut = false;
    for (let n = Math.min(32, max); n <= max; n *= 2) {
      isCut = performance.now() > end;
      if (isCut) break;
      status.textContent = `Measuring ${count(n)} tokens…`;
      // The least of a few: noise of a machine only adds, and short times have more of it.
      const runs = [];
      let spent = 0;
      do {
        runs.push(await timeText(n, stop.signal));
        spent += runs[runs.length - 1][1];
      } while (runs.length < (spent < 400 ? 10 : 3) && spent < 4000);
      if (runs.some((r) => r[3])) break;
      const least = runs.reduce((a, b) => (b[1] < a[1] ? b : a));
      if (reading.length && least[0] <= reading[reading.length - 1][0]) break; // no text is longer for this model
      reading.push([least[0], least[1]]);
      if (f.has_sessions) next.push([least[0], Math.min(...runs.map((r) => r[2]))]);
      id('speed-result').hidden = false;
      plot(id('prefill-chart'), reading, max, true);
      if (next.length) plot(id('decode-chart'), next, max, false);
      const e = exponent(reading);
      if (e !== null) id('prefill-fine').textContent = `For the longer half, twice the length takes ${(2 ** e).toFixed(1)} times as long: 2 is linear, 4 quadratic. Both axes are logarithmic; the time of the request is part of it.`;
      const [from, to] = [next[Math.min(3, next.length - 1)], next[next.length - 1]];
      if (to && to !== from) id('decode-fine').textContent = `After ${count(to[0])} tokens it takes ${(to[1] / from[1]).toFixed(2)} times as long as after ${count(from[0])}. ${f.keeps_sessions ? 'The write to the store is part of it.' : ''}`;
    }
    status.textContent = reading.length
      ? `Done: up to ${count(reading[reading.length - 1][0])} tokens.${isCut ? ' Measure goes on to longer texts.' : ''}` : 'The model cuts texts before the shortest length that is measured.';
  } catch (e) {
    status.textContent = explain(e);
  }
  if (left.length) status.textContent += ` These sessions are left: ${left.join(', ')}.`;
  stop = null;
  swap(id('speed-start'), id('speed-stop'));
}

/** startSpeed prepares the view and returns what measures for a moment when it opens. */
export function startSpeed(m) {
  model = m;
  const context = limitOf(m.farfield) || Infinity, room = m.farfield.has_sessions ? drawn + 1 : 0;
  const lengths = [512, 1024, 2048, 4096, 8192, 16384, 32768, 65536].filter((n) => n + room <= context);
  if (!lengths.length) lengths.push(2 ** Math.floor(Math.log2(Math.max(1, context - room))));
  id('speed-max').replaceChildren(...lengths.map((n) => h('option', { value: n, selected: n === lengths[Math.min(3, lengths.length - 1)] }, `${count(n)} tokens`)));
  id('speed-form').addEventListener('submit', (e) => {
    e.preventDefault();
    if (!stop) measure();
  });
  id('speed-stop').addEventListener('click', () => stop?.abort());
  let isOpened = false;
  return () => {
    if (!isOpened) measure(glance);
    isOpened = true;
  };
}
