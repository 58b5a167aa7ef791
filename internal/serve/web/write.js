// Sessions: continue a text, fork it, compare both, and the size of the state.

import { call, stream } from './api.js';
import { h, id, bytes, count, short, explain, swap, border } from './dom.js';
import { lineChart } from './chart.js';

// The server keeps ids and states. The text of a session is kept here, in this browser.
const shelf = 'farfield.texts';
const maxTexts = 40, maxText = 100000;

function readTexts() {
  try {
    return JSON.parse(localStorage.getItem(shelf)) || {};
  } catch {
    return {};
  }
}

// id → {parts: [{by, text}], cut, points: [[tokens, bytes]], at, lost}. cut characters before the parts are not kept;
// lost is what the server may have stored without an answer: {tokens before, words, drawn, n tokens drawn}.
const texts = readTexts();

// store writes the text of one session to the shelf, or takes it away. Other texts may be of other tabs.
function store(sid) {
  const kept = readTexts();
  if (texts[sid]) kept[sid] = texts[sid];
  else delete kept[sid];
  const ids = Object.keys(kept).sort((a, b) => kept[b].at - kept[a].at);
  for (const old of ids.slice(maxTexts)) delete kept[old];
  try {
    localStorage.setItem(shelf, JSON.stringify(kept));
  } catch { /* a full shelf: the text is shown until the page is left */ }
}

// trim cuts what is beyond maxText from the front of a text.
function trim(text) {
  let more = whole(text).length - maxText;
  while (more > 0) {
    const first = text.parts[0], n = border(first.text, Math.min(more, first.text.length));
    more -= first.text.length;
    text.cut = cutOf(text) + n;
    if (n < first.text.length) first.text = first.text.slice(n);
    else text.parts.shift();
  }
}

function keep(sid) {
  trim(texts[sid]);
  texts[sid].at = Date.now();
  store(sid);
}

// reread takes the text of a session from the shelf if another tab wrote on.
function reread(sid) {
  const kept = readTexts()[sid];
  if (kept?.at > (texts[sid]?.at || 0)) texts[sid] = kept;
}

const record = (sid) => texts[sid] || (texts[sid] = { parts: [], points: [], at: 0 });

function add(sid, by, text) {
  const parts = record(sid).parts, last = parts[parts.length - 1];
  if (last && last.by === by) last.text += text;
  else parts.push({ by, text });
}

// addWords adds words that the server has read, and keeps them.
function addWords(sid, words) {
  add(sid, 'you', words);
  keep(sid);
}

let model, panes = [], sessions = [];

const whole = (text) => text.parts.map((p) => p.text).join('');
const cutOf = (text) => text.cut || 0;
const named = (sid) => sid.slice(0, 8);
const unseen = (n) => (n > 0 ? ` The server stored ${count(n)} tokens more than are shown.` : '');
const unknown = (lost) => ` It is unknown whether the server stored ${lost.words ? 'your words' : 'the new text'}. The next Continue compares.`;

// Pane is a session beside its controls. Without an id it makes one of its first text.
class Pane {
  constructor(sid, seed) {
    this.id = sid || null;
    this.info = null;
    this.stop = null;
    this.follows = true; // the end of the text is shown, until a reader scrolls away from it
    this.build(seed);
  }

  build(seed) {
    const uid = 'p' + Math.random().toString(36).slice(2, 8);
    const field = (name, label, attributes) => {
      const input = h('input', { id: uid + name, type: 'number', ...attributes });
      this[name] = input;
      return h('div', { class: 'field' }, h('label', { for: uid + name }, label), input);
    };
    this.title = h('h3', { id: uid + 'title' });
    this.meta = h('p', { class: 'meta' });
    this.text = h('div', { class: 'text', role: 'region', tabindex: 0, 'aria-labelledby': uid + 'title' });
    this.text.addEventListener('scroll', () => {
      this.follows = this.text.scrollHeight - this.text.scrollTop - this.text.clientHeight < 40;
    });
    this.words = h('textarea', { id: uid + 'words', rows: 3, maxlength: 200000 });
    this.wordsLabel = h('label', { for: uid + 'words' });
    this.status = h('p', { class: 'fine', role: 'status' });
    this.go = h('button', { class: 'primary' }, 'Continue');
    this.halt = h('button', { type: 'button', disabled: true, onclick: () => this.stop?.abort() }, 'Stop');
    this.forkButton = h('button', { type: 'button', onclick: () => this.fork() }, 'Fork');
    this.closeButton = h('button', { type: 'button', onclick: () => close(this) }, 'Close');
    const form = h('form', { class: 'controls' },
      this.wordsLabel, this.words,
      h('div', { class: 'fields' },
        field('tokens', 'New tokens', { min: 1, max: 4096, value: 64, required: true }),
        field('temperature', 'Temperature', { min: 0, max: 5, step: 0.1, value: 0.8, required: true }),
        field('seed', 'Seed', { min: 0, max: 2147483647, value: seed, required: true })),
      h('p', { class: 'row' }, this.go, this.halt, this.forkButton, this.closeButton), this.status);
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      this.run();
    });
    form.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && (e.ctrlKey || e.metaKey)) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
    this.node = h('article', { class: 'pane', 'aria-labelledby': uid + 'title' }, h('header', {}, this.title, this.meta), this.text, form);
    this.node.addEventListener('keydown', (e) => { if (e.key === 'Escape') this.stop?.abort(); });
  }

  // draw shows the text; what other panes begin with too is dimmed.
  draw(common) {
    const nodes = [], text = record0(this.id);
    let from = cutOf(text);
    if (from) nodes.push(h('span', { class: 'empty' }, `… the first ${count(from)} characters are not kept here `));
    for (const part of text.parts) {
      const cut = Math.min(Math.max((common || 0) - from, 0), part.text.length);
      if (cut) nodes.push(h('span', { class: part.by + ' common' }, part.text.slice(0, cut)));
      if (cut < part.text.length) nodes.push(h('span', { class: part.by }, part.text.slice(cut)));
      from += part.text.length;
    }
    if (!nodes.length) nodes.push(h('span', { class: 'empty' }, this.id && this.info?.tokens
      ? 'The server holds this session. Its text was written in another browser.' : 'Write a beginning below. The model goes on from there.'));
    this.text.replaceChildren(...nodes);
    if (this.follows) this.text.scrollTop = this.text.scrollHeight;
    this.title.textContent = this.id ? 'Session ' + named(this.id) : 'New session';
    this.meta.textContent = this.info ? `${count(this.info.tokens)} tokens · ${bytes(this.info.bytes)} of state` : '';
    this.wordsLabel.textContent = this.id ? 'Your next words (may be empty)' : 'Beginning';
    this.forkButton.disabled = !this.id || !!this.stop || panes.length > 1;
    this.closeButton.hidden = panes.length < 2;
  }

  async refresh() {
    this.info = this.id ? await call('GET', '/v1/sessions/' + encodeURIComponent(this.id)) : null;
    if (this.info) {
      const points = record(this.id).points, last = points[points.length - 1];
      if (!last || last[0] < this.info.tokens) points.push([this.info.tokens, this.info.bytes]);
      if (points.length > 300) points.splice(1, 1);
    }
  }

  // busy switches the controls between waiting and writing.
  busy(stop) {
    this.stop = stop;
    if (stop) swap(this.halt, this.go);
    else swap(this.go, this.halt);
    this.words.readOnly = !!stop;
    this.node.setAttribute('aria-busy', stop ? 'true' : 'false');
  }

  async run() {
    if (this.stop) return;
    if (!this.id && !this.words.value) {
      this.status.textContent = 'A new session needs a beginning.';
      this.words.focus();
      return;
    }
    if (this.id) reread(this.id);
    const stop = new AbortController();
    this.follows = true;
    this.busy(stop);
    this.status.textContent = 'Reading…';
    let n = 0, note = '', settled = '', before = Infinity, isEnded = true;
    let lost = null; // what a request adds, until its answer
    try {
      if (!this.id) {
        const words = this.words.value;
        const made = await call('POST', '/v1/sessions', { text: words }, stop.signal);
        this.id = made.id;
        addWords(this.id, words);
        open();
      } else {
        const isChanged = !this.beginsWith(record0(this.id).lost);
        settled = await this.compare(stop.signal);
        if (isChanged) throw new Error('Nothing was sent: the field did not begin with your former words. Check it, then Continue.');
        const words = this.words.value;
        if (words) {
          await this.refresh();
          lost = { tokens: this.info.tokens, words, drawn: '', n: 0 };
          await call('POST', this.path('append'), { text: words }, stop.signal);
          lost = null;
          addWords(this.id, words);
        }
      }
      this.words.value = '';
      await this.refresh();
      before = this.info.tokens;
      render();
      const began = performance.now(), draw = { tokens: before, words: '', drawn: '', n: 0 };
      lost = draw;
      let frame = 0, final = null;
      const request = { max_tokens: Number(this.tokens.value), temperature: Number(this.temperature.value), seed: Number(this.seed.value), stream: true };
      await stream(this.path('generate'), request, (event) => {
        if (event.ids) {
          final = event;
          return;
        }
        draw.n++;
        draw.drawn += event.text;
        add(this.id, 'model', event.text);
        if (!frame) frame = requestAnimationFrame(() => {
          frame = 0;
          drawPanes();
        });
      }, stop.signal);
      cancelAnimationFrame(frame);
      lost = null;
      n = draw.n;
      const seconds = (performance.now() - began) / 1000;
      if (final && final.text !== draw.drawn) this.replace(draw.drawn, final.text);
      note = `${count(n)} tokens written, ${short(n / seconds)} a second.`;
    } catch (e) {
      note = explain(e);
      isEnded = e.status > 0 || (!!lost && e.name === 'AbortError' && await this.rest());
      if (e.status && !lost?.drawn) lost = null; // refused
    }
    note += settled;
    if (this.id) {
      if (n) keep(this.id);
      const isFresh = await this.refresh().then(() => true, () => false);
      // After a lost connection the server may still be at work, and store later.
      if (lost && isFresh && (isEnded || this.info.tokens > lost.tokens)) note += this.settle(lost);
      else if (lost) {
        record(this.id).lost = lost;
        keep(this.id);
        note += unknown(lost);
      } else {
        if (!n) reread(this.id);
        note += unseen(this.info?.tokens - before - n);
      }
    }
    this.busy(null);
    await list();
    render();
    this.status.textContent = note;
  }

  path(verb) {
    return `/v1/sessions/${encodeURIComponent(this.id)}/${verb}`;
  }

  // rest waits until no request writes the session, for a stopped one may still be stored. It returns false if that takes long.
  async rest() {
    for (let i = 0; i < 10; i++) {
      try {
        await call('POST', this.path('append'), { ids: [] });
        return true;
      } catch (e) {
        if (e.status !== 409) return false;
      }
      await new Promise((done) => setTimeout(done, 200));
    }
    return false;
  }

  // compare finds out what the server stored of a lost request, and says it. It fails while the server is at work on it.
  async compare(signal) {
    const { lost } = record0(this.id);
    if (!lost) return '';
    await this.refresh();
    if (this.info.tokens <= lost.tokens) {
      await call('POST', this.path('append'), { ids: [] }, signal); // refused while another request writes
      await this.refresh();
    }
    return this.settle(lost);
  }

  // beginsWith is false where the field does not begin with the words of a lost request.
  beginsWith(lost) {
    return this.words.value.startsWith(lost?.words || '');
  }

  // settle adds words that the server stored, puts others back into the field, or takes drawn text away that it did not store, and says it.
  settle(lost) {
    const stored = this.info.tokens - lost.tokens;
    let note = '';
    delete record(this.id).lost;
    if (lost.words && stored > 0) {
      add(this.id, 'you', lost.words);
      if (this.beginsWith(lost)) this.words.value = this.words.value.slice(lost.words.length);
      note = ' The server stored your words.';
    } else if (!this.beginsWith(lost)) {
      this.words.value = lost.words + this.words.value;
      note = ' The server did not store your words. They are in the field.';
    } else if (lost.drawn && stored <= 0) {
      this.replace(lost.drawn, '');
      note = ' What was not stored is taken away.';
    } else note = unseen(stored - lost.n);
    keep(this.id);
    return note;
  }

  // replace puts the final text where its pieces were.
  replace(drawn, final) {
    const all = record(this.id).parts, last = all[all.length - 1];
    if (last && last.by === 'model' && last.text.endsWith(drawn)) last.text = last.text.slice(0, last.text.length - drawn.length) + final;
  }

  async fork() {
    if (this.stop) return;
    reread(this.id);
    const stop = new AbortController();
    this.busy(stop);
    try {
      const settled = await this.compare(stop.signal);
      const made = await call('POST', this.path('fork'), undefined, stop.signal);
      texts[made.id] = JSON.parse(JSON.stringify(record(this.id)));
      keep(made.id);
      const other = new Pane(made.id, Number(this.seed.value) + 1);
      for (const name of ['tokens', 'temperature']) other[name].value = this[name].value;
      await other.refresh();
      panes.push(other);
      open();
      this.status.textContent = `Forked. ${named(made.id)} begins with the same state.${settled}`;
      await list();
      other.words.focus();
    } catch (e) {
      this.status.textContent = explain(e);
    }
    this.busy(null);
    render();
  }
}

const record0 = (sid) => (sid && texts[sid]) || { parts: [], points: [] };

// open writes the sessions that are shown into the address, and draws them.
function open() {
  const hash = '#write/' + panes.filter((p) => p.id).map((p) => p.id).join('/');
  if (location.hash !== hash) history.replaceState(null, '', hash);
  const nodes = panes.map((p) => p.node), host = id('panes');
  for (const old of [...host.children]) if (!nodes.includes(old)) old.remove();
  for (const node of nodes) if (node.parentNode !== host) host.append(node); // the others keep the focus
  render();
}

function close(pane) {
  pane.stop?.abort();
  panes = panes.filter((p) => p !== pane);
  open();
  panes[0].words.focus();
}

function render() {
  drawPanes();
  drawState();
  drawList();
}

function drawPanes() {
  let common = 0;
  if (panes.length === 2) {
    const both = panes.map((p) => record0(p.id)), [a, b] = both.map(whole), [i, j] = both.map(cutOf);
    const from = Math.max(i, j); // before it one of them is not kept
    common = from;
    while (common - i < a.length && common - j < b.length && a[common - i] === b[common - j]) common++;
    const isSame = common - i === a.length && common - j === b.length;
    common = i + border(a, common - i);
    const same = count(common - from), behind = from ? ` behind the first ${count(from)}, which are not kept here,` : '';
    id('both-note').textContent = isSame
      ? `Both texts are the same: ${same} characters${behind.replace(/,$/, '')}.`
      : `The first ${same} characters${behind} are the same (dimmed).`;
    if (common <= from) common = 0;
  }
  id('both').hidden = panes.length < 2;
  id('view-write').classList.toggle('pair', panes.length === 2);
  for (const p of panes) p.draw(common);
}

function drawState() {
  const pane = panes.find((p) => p.stop) || panes[panes.length - 1];
  const f = model.farfield, cache = f.kv_bytes_per_token;
  const points = pane ? record0(pane.id).points : [];
  const last = points[points.length - 1], isFixed = f.state === 'fixed';
  const now = last ? last[0] : 0;
  id('state-bytes').textContent = last ? bytes(last[1]) : '–';
  id('state-note').textContent = last ? `after ${count(now)} tokens; a KV cache: ${bytes(cache * now)}` : 'Start a session to measure it.';
  const far = Math.max(2 * now, last && isFixed ? (2.5 * last[1]) / cache : 0, 256);
  const series = [{ name: 'KV cache', kind: 'b', points: [[0, 0], ...points.map(([n]) => [n, cache * n]), [far, cache * far]] }];
  if (last) {
    series.push({ name: 'this state', kind: 'a', points, dots: points.length < 30 });
    if (isFixed) series.push({ kind: 'a', dashed: true, points: [last, [far, last[1]]] });
  }
  lineChart(id('state-chart'), {
    label: `Bytes over tokens. ${last ? `State ${bytes(last[1])}, KV cache ${bytes(cache * now)} at ${count(now)} tokens.` : 'KV cache alone: no session yet.'}`,
    x: { name: 'tokens', max: far, format: short },
    y: { name: 'bytes', max: Math.max(cache * far, last ? last[1] * 1.15 : 0), format: bytes, binary: true },
    series,
  });
  const lengths = [1e3, 1e4, 1e5, 1e6].filter((n) => !f.context || n <= f.context);
  id('state-table').hidden = !last || !isFixed || !lengths.length;
  id('state-table').tBodies[0].replaceChildren(...lengths.map((n) => h('tr', {}, h('th', { scope: 'row' }, count(n)),
    h('td', {}, last ? bytes(last[1]) : ''), h('td', {}, bytes(cache * n)))));
  let note = `KV cache: keys and values of a softmax of the same shape in float32, ${bytes(cache)} a token.`;
  if (last && isFixed) note += ` Up to ${count(Math.ceil(last[1] / cache))} tokens it is the smaller one.`;
  if (last && !isFixed) note += ' The state of this model grows with the text, too, and takes memory in steps: longer texts are not estimated.';
  id('state-fine').textContent = note;
}

async function list() {
  try {
    sessions = (await call('GET', '/v1/sessions')).data;
  } catch (e) {
    id('sessions').replaceChildren(h('li', {}, explain(e)));
    return;
  }
  drawList();
}

function drawList() {
  const shown = new Set(panes.map((p) => p.id));
  const rank = (s) => texts[s.id]?.at || 0;
  const rows = [...sessions].sort((a, b) => rank(b) - rank(a)).slice(0, 100).map((s) => {
    const text = whole(record0(s.id)), begin = text.slice(border(text, Math.max(text.length - 60, 0))).trim() || 'text of another browser';
    return h('li', { class: shown.has(s.id) ? 'shown' : null },
      h('a', { href: '#write/' + s.id, 'aria-current': shown.has(s.id) ? 'true' : null },
        h('span', { class: 'sid' }, named(s.id)), h('span', { class: 'snip' }, begin), h('span', { class: 'size' }, `${count(s.tokens)} tokens`)),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Delete session ' + named(s.id), onclick: () => remove(s.id) }, 'Delete'));
  });
  if (!rows.length) rows.push(h('li', { class: 'fine' }, 'None yet.'));
  id('sessions').replaceChildren(...rows);
}

async function remove(sid) {
  if (!confirm(`Delete session ${named(sid)}? Its state is gone then.`)) return;
  try {
    await call('DELETE', '/v1/sessions/' + encodeURIComponent(sid));
  } catch (e) {
    if (e.status !== 404) {
      panes[0].status.textContent = explain(e);
      return;
    }
  }
  delete texts[sid];
  store(sid);
  panes = panes.filter((p) => p.id !== sid);
  if (!panes.length) panes = [new Pane(null, 1)];
  await list();
  open();
}

// show opens the sessions of an address such as #write/ID/ID.
async function show(ids) {
  const wanted = [...new Set(ids.filter(Boolean))].slice(0, 2);
  if (panes.length && (!wanted.length || wanted.join() === panes.map((p) => p.id).join())) {
    open();
    return;
  }
  const next = [];
  let lost = '';
  for (const sid of wanted) {
    reread(sid);
    const pane = new Pane(sid, 1 + next.length);
    if (texts[sid]?.lost) {
      pane.words.value = texts[sid].lost.words;
      pane.status.textContent = unknown(texts[sid].lost).trim();
    }
    try {
      await pane.refresh();
      next.push(pane);
    } catch (e) {
      lost = explain(e);
    }
  }
  for (const p of panes) p.stop?.abort();
  panes = next.length ? next : [new Pane(null, 1)];
  if (lost) panes[0].status.textContent = lost;
  open();
}

/** startWrite prepares the view and returns what shows the sessions of an address. */
export function startWrite(m) {
  model = m;
  window.addEventListener('storage', () => {
    for (const p of panes) if (p.id && !p.stop) reread(p.id);
    render();
  });
  id('session-new').addEventListener('click', () => {
    for (const p of panes) p.stop?.abort();
    panes = [new Pane(null, 1)];
    open();
    panes[0].words.focus();
  });
  id('both-continue').addEventListener('click', () => panes.forEach((p) => p.node.querySelector('form').requestSubmit()));
  list();
  return show;
}
