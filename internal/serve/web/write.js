// Sessions: continue a text, take a step back, fork it, and the memory that it takes.
// The server keeps the texts. This browser keeps only who wrote which part.

import { call, stream, limitOf } from './api.js';
import { h, id, bytes, count, short, explain, swap, border, chips, recall, remember, sleep } from './dom.js';
import { lineChart } from './chart.js';

const shelf = 'farfield.steps';
const maxShelf = 40, maxShown = 100000; // sessions; characters of a text
const examples = ['Once upon a time, there was a little dog.', 'The university was founded in'];

let model, panes = [], sessions = [];

// Steps of a session: {steps: [{by, from, tokens}], end, tokens, words, at}. A step begins at a character, after a
// number of tokens, and is by "you", by the "model" or from "elsewhere". end and tokens are those of the text that
// was last seen; words were sent and have no answer yet.
const stepsOf = (sid) => recall(shelf, {})[sid] || { steps: [], end: 0, tokens: 0, at: 0 };

// keep stores the steps of a session, or forgets them. Others may be of other tabs.
function keep(sid, record) {
  const all = recall(shelf, {});
  if (record) all[sid] = { ...record, at: Date.now() };
  else delete all[sid];
  const ids = Object.keys(all).sort((a, b) => all[b].at - all[a].at);
  for (const old of ids.slice(maxShelf)) delete all[old];
  remember(shelf, all);
}

// nameOf names a text by its first words.
function nameOf(text) {
  const line = text.replace(/\s+/g, ' ').trim();
  if (line.length <= 40) return line;
  const end = line.lastIndexOf(' ', 40);
  return line.slice(0, end > 16 ? end : border(line, 40)) + '\u00a0…';
}

// when writes a time of the server in seconds.
function when(seconds) {
  const date = new Date(1000 * seconds), isToday = date.toDateString() === new Date().toDateString();
  return date.toLocaleString([], isToday ? { timeStyle: 'short' } : { dateStyle: 'medium' });
}

const pathOf = (sid) => '/v1/sessions/' + encodeURIComponent(sid);
const broken = 'The connection broke.';

// nothing is what a pane has of a session before there is one.
const nothing = () => ({
  id: null,
  info: null, // as the server told it last
  text: '', // of the session
  drawn: '', // behind it, while it is drawn
  record: { steps: [], end: 0, tokens: 0 },
  isUnsure: false, // a request was lost, and the server has not answered since
});

// Pane is a session beside its controls. Without an id it makes one of its first text.
class Pane {
  constructor(sid, seed) {
    Object.assign(this, nothing(), { id: sid });
    this.stop = null; // aborts the request that runs
    this.follows = true; // the end of the text is shown, until a reader scrolls away from it
    this.build(seed);
  }

  build(seed) {
    const uid = 'p' + Math.random().toString(36).slice(2, 8);
    const field = (name, label, attributes) => {
      this[name] = h('input', { id: uid + name, type: 'number', 'data-field': name, required: true, ...attributes, oninput: () => this.drawSettings() });
      return h('div', {}, h('label', { for: uid + name }, label), this[name]);
    };
    const { max_tokens: most, vocab } = model.farfield;
    this.title = h('h3', { id: uid + 'title' });
    this.meta = h('p', { class: 'meta' });
    this.shown = h('div', { class: 'text', role: 'region', tabindex: 0, 'aria-labelledby': uid + 'title' });
    this.shown.addEventListener('scroll', () => {
      this.follows = this.shown.scrollHeight - this.shown.scrollTop - this.shown.clientHeight < 40;
    });
    this.words = h('textarea', { id: uid + 'words', rows: 3, maxlength: 200000 });
    this.wordsLabel = h('label', { for: uid + 'words' });
    this.examples = h('div', { class: 'chips' });
    chips(this.examples, examples, (text) => {
      this.words.value = text;
      this.run();
    });
    this.settings = h('summary');
    this.status = h('p', { class: 'fine status', role: 'status' });
    this.go = h('button', { class: 'primary' }, 'Continue');
    this.halt = h('button', { type: 'button', disabled: true, onclick: () => this.stop?.abort() }, 'Stop');
    this.undoButton = h('button', { type: 'button', onclick: () => this.undo() }, 'Undo');
    this.forkButton = h('button', { type: 'button', title: 'Open a copy beside it, to go on in two ways', onclick: () => this.fork() }, 'Fork');
    this.closeButton = h('button', { type: 'button', onclick: () => close(this) }, 'Close');
    const form = h('form', { class: 'controls' },
      this.wordsLabel, this.words, this.examples,
      h('details', { class: 'settings' }, this.settings,
        h('div', { class: 'fields' },
          field('tokens', 'Tokens to write', { min: 1, max: most, value: Math.min(vocab > 1000 ? 64 : 200, most) }),
          field('temperature', 'Temperature, 0 to 5', { min: 0, max: 5, step: 0.1, value: 0.8 }),
          field('seed', 'Seed', { min: 0, max: 2147483647, value: seed })),
        h('p', { class: 'fine' }, 'A token is a piece of a word. At temperature 0 the model writes the likeliest token each time; higher ones are bolder. The same text and seed give the same words.')),
      h('p', { class: 'row' }, this.go, this.halt, this.undoButton, this.forkButton, this.closeButton), this.status);
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
    this.node = h('article', { class: 'pane', 'aria-labelledby': uid + 'title' }, h('header', {}, this.title, this.meta), this.shown, form);
    this.node.addEventListener('keydown', (e) => { if (e.key === 'Escape') this.stop?.abort(); });
    this.drawSettings();
  }

  drawSettings() {
    this.settings.textContent = `Settings: ${this.tokens.value} tokens, temperature ${this.temperature.value}, seed ${this.seed.value}`;
  }

  // draw shows the text; what other panes begin with too is dimmed.
  draw(common) {
    const nodes = [], whole = this.text + this.drawn, from = border(whole, Math.max(0, whole.length - maxShown));
    if (from) nodes.push(h('span', { class: 'empty' }, `… ${count(from)} characters before are not shown `));
    if (this.info?.unknown_tokens) nodes.push(h('span', { class: 'empty' }, `… ${count(this.info.unknown_tokens)} tokens before came with a snapshot, without their text `));
    const { steps } = this.record;
    const marks = [{ by: 'elsewhere', from: 0 }, ...steps, ...(this.drawn ? [{ by: 'model', from: this.text.length }] : [])];
    marks.forEach((m, i) => {
      const end = i + 1 < marks.length ? marks[i + 1].from : whole.length;
      for (const [a, b, dim] of [[m.from, Math.min(end, common), ' common'], [Math.max(m.from, common), end, '']]) {
        const part = whole.slice(Math.max(a, from), b);
        if (a < b && part) nodes.push(h('span', { class: m.by + dim }, part));
      }
    });
    if (!whole && !this.info?.unknown_tokens) nodes.push(h('span', { class: 'empty' }, this.stop ? 'Reading…' : 'Write a beginning below, or take an example. The model goes on from there.'));
    this.shown.replaceChildren(...nodes);
    if (this.follows) this.shown.scrollTop = this.shown.scrollHeight;
    this.title.textContent = this.id ? nameOf(this.text.slice(0, 400)) || 'Session ' + this.id.slice(0, 8) : 'New text';
    this.title.title = this.id ? 'Session ' + this.id : '';
    const limit = limitOf(model.farfield);
    this.meta.textContent = this.info ? `${count(this.info.tokens)}${limit && limit < 1e5 ? ' of ' + count(limit) : ''} tokens` : '';
    this.wordsLabel.textContent = this.id ? 'Your next words (may be empty)' : 'Beginning';
    this.examples.hidden = !!this.id || !!this.stop;
    this.forkButton.disabled = !this.id || !!this.stop;
    this.forkButton.hidden = panes.length > 1;
    this.undoButton.disabled = !this.id || !!this.stop || !this.lastStep();
    this.closeButton.hidden = panes.length < 2;
  }

  // lastStep is the step that Undo takes back; the beginning of a session is none.
  lastStep() {
    const { steps } = this.record, step = steps[steps.length - 1];
    return step && step.by !== 'elsewhere' && step.tokens > 0 ? step : null;
  }

  addStep(by, from, tokens) {
    this.record.steps.push({ by, from, tokens });
  }

  // load takes the text from the server, as soon as no request of a client holds the session. It says what
  // became of words that were sent without an answer.
  async load(signal) {
    let info = await call('GET', pathOf(this.id) + '?text', undefined, signal);
    for (let wait = 50; info.busy && wait < 5000; wait *= 2) {
      await sleep(wait);
      info = await call('GET', pathOf(this.id), undefined, signal);
      if (!info.busy) info = await call('GET', pathOf(this.id) + '?text', undefined, signal);
    }
    // Some tokenizers put a space before a text that its writer did not write.
    if (info.text !== undefined) this.text = info.text.startsWith(' ') && !this.text.startsWith(' ') ? info.text.slice(1) : info.text;
    this.info = info;
    this.isUnsure = false;
    const r = this.record, length = this.text.length;
    let note = '';
    if (r.words !== undefined) {
      const isStored = info.tokens > r.tokens, isSame = this.words.value.startsWith(r.words);
      if (isStored) {
        this.addStep('you', r.end, r.tokens);
        [r.end, r.tokens] = [Math.min(length, r.end + r.words.length), info.tokens];
        if (isSame) this.words.value = this.words.value.slice(r.words.length);
        note = ' The server has your words.';
      } else {
        if (!isSame) this.words.value = r.words + this.words.value;
        note = ' The server does not have your words. They are in the field.';
      }
      delete r.words;
    }
    r.steps = r.steps.filter((s) => s.from < length);
    if (length > r.end && r.steps[r.steps.length - 1]?.from !== r.end) this.addStep('elsewhere', r.end, r.tokens);
    [r.end, r.tokens] = [length, info.tokens];
    keep(this.id, r);
    return note;
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
      this.status.textContent = 'A new text needs a beginning.';
      this.words.focus();
      return;
    }
    const stop = new AbortController();
    this.follows = true;
    this.busy(stop);
    this.status.textContent = 'Reading…';
    render();
    let note = '';
    try {
      if (await this.isAsShown(stop.signal)) note = await this.write(stop.signal);
      else note = 'The session went on elsewhere. This is its text now; nothing was sent.';
    } catch (e) {
      note = e.note || explain(e);
      if (this.id && (e.status === 404 || e.status === 410)) note += this.leave();
    }
    if (this.id) {
      try {
        note += await this.load();
      } catch (e) {
        this.isUnsure = true;
        note += this.record.words !== undefined ? ' It is unknown whether the server has your words.' : ' It is unknown how much of it the server has.';
        note += ' The next Continue asks first.';
      }
      if (!this.isUnsure) this.drawn = '';
    }
    this.busy(null);
    render();
    this.status.textContent = note;
    await list();
  }

  // leave puts the text of a session that the server has no more into the field.
  leave() {
    keep(this.id, null);
    this.words.value = this.text + this.drawn + this.words.value;
    Object.assign(this, nothing());
    open();
    return ' Its text is in the field. Continue begins it anew.';
  }

  // isAsShown asks the server for the length of the text, which another tab or browser may have continued.
  async isAsShown(signal) {
    if (!this.id) return true;
    if (!this.isUnsure) return (await call('GET', pathOf(this.id), undefined, signal)).tokens === this.info?.tokens;
    const words = this.record.words;
    const isChanged = words !== undefined && !this.words.value.startsWith(words);
    this.drawn = '';
    const note = await this.load(signal);
    if (isChanged) throw Object.assign(new Error(), { note: 'Nothing was sent, because your words changed meanwhile.' + note });
    return true;
  }

  // write sends the words of the field, then draws. It returns what to say.
  async write(signal) {
    const words = this.words.value, f = model.farfield, r = this.record;
    let { tokens } = this.info || { tokens: 0 };
    if (!this.id) {
      const made = await call('POST', '/v1/sessions', { text: words }, signal);
      this.id = made.id;
      this.info = made;
      this.addStep('you', 0, 0);
      tokens = made.tokens;
      open();
    } else if (words) {
      r.words = words;
      keep(this.id, r);
      try {
        ({ tokens } = await call('POST', pathOf(this.id) + '/append', { text: words }, signal));
      } catch (e) {
        if (e.status) delete r.words; // refused
        throw e;
      }
      delete r.words;
      this.addStep('you', this.text.length, this.info.tokens);
      this.info.tokens = tokens;
    }
    this.text += words;
    this.words.value = '';
    [r.end, r.tokens] = [this.text.length, tokens];
    const limit = limitOf(f), room = limit ? limit - tokens : Infinity;
    if (room < 1) return `The text has ${count(tokens)} tokens, as many as it may. Undo a step, or start a new text.`;
    this.addStep('model', this.text.length, tokens);
    keep(this.id, r);
    this.drawn = '';
    render();
    const began = performance.now();
    const request = { max_tokens: Math.min(Number(this.tokens.value), room), temperature: Number(this.temperature.value), seed: Number(this.seed.value), stop_at_end: true, stream: true };
    let frame = 0, n = 0, reason = '';
    try {
      await stream(pathOf(this.id) + '/generate', request, (event) => {
        if (event.ids) {
          reason = event.finish_reason;
          return;
        }
        n++;
        this.drawn += event.text;
        if (!frame) frame = requestAnimationFrame(() => {
          frame = 0;
          drawPanes();
        });
      }, signal);
    } catch (e) {
      if (e.name === 'AbortError') return `Stopped after ${count(n)} tokens. They stay.`;
      if (e.status) throw e;
      return n ? `${broken} ${count(n)} tokens came before.` : broken;
    } finally {
      cancelAnimationFrame(frame);
    }
    const speed = `${count(n)} tokens written, ${short((1000 * n) / (performance.now() - began))} a second.`;
    if (reason === 'stop') return `${speed} The model ended the text here.`;
    if (n === room) return `${speed} The text is now as long as it may be.`;
    const { trained_context: trained } = f;
    return speed + (trained && tokens + n > trained ? ` The model was trained on texts of ${count(trained)} tokens; behind them it writes worse.` : '');
  }

  // undo takes the last step back. Your own words come back into the field.
  async undo() {
    const step = this.lastStep();
    if (this.stop || !step) return;
    const own = step.by === 'you' ? this.text.slice(step.from) : '';
    const stop = new AbortController();
    this.busy(stop);
    let note = 'The session went on elsewhere. This is its text now; nothing was taken back.';
    try {
      if (await this.isAsShown(stop.signal)) {
        await call('POST', pathOf(this.id) + '/rewind', { tokens: step.tokens }, stop.signal);
        this.record.steps.pop();
        this.record.end = Infinity; // nothing of what is left came from elsewhere
        if (own) this.words.value = own + this.words.value;
        note = own ? 'Your last words are in the field again.' : 'The last words of the model are taken back. Another seed gives others.';
      }
      await this.load(stop.signal);
    } catch (e) {
      note = explain(e);
    }
    this.busy(null);
    render();
    this.status.textContent = note;
    await list();
  }

  async fork() {
    if (this.stop) return;
    const stop = new AbortController();
    this.busy(stop);
    try {
      if (this.isUnsure) await this.load(stop.signal);
      const made = await call('POST', pathOf(this.id) + '/fork', undefined, stop.signal);
      const other = new Pane(made.id, Number(this.seed.value) + 1);
      for (const name of ['tokens', 'temperature']) other[name].value = this[name].value;
      other.drawSettings();
      other.record = structuredClone(this.record);
      await other.load(stop.signal);
      panes.push(other);
      open();
      this.status.textContent = 'Forked: the copy beside it begins with the same text.';
      await list();
      other.words.focus();
    } catch (e) {
      this.status.textContent = explain(e);
    }
    this.busy(null);
    render();
  }
}

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
    const [a, b] = panes.map((p) => p.text + p.drawn);
    while (common < a.length && common < b.length && a[common] === b[common]) common++;
    common = border(a, common);
    id('both-note').textContent = common === a.length && common === b.length
      ? 'Both texts are the same.' : `The first ${count(common)} characters are the same (dimmed).`;
  }
  id('both').hidden = panes.length < 2;
  id('view-write').classList.toggle('pair', panes.length === 2);
  for (const p of panes) p.draw(common);
}

// drawState compares the state with a KV cache, for models whose state does not grow.
function drawState() {
  const f = model.farfield, info = (panes.find((p) => p.stop) || panes[panes.length - 1])?.info;
  const isShown = f.state === 'fixed' && info?.bytes > 0;
  id('state-card').hidden = !isShown;
  if (!isShown) return;
  const cache = f.kv_bytes_per_token, { tokens, bytes: size } = info, limit = limitOf(f) || Infinity;
  id('state-bytes').textContent = bytes(size);
  id('state-note').textContent = `after ${count(tokens)} tokens, and after any number of them`;
  const far = Math.max(2 * tokens, (2.5 * size) / cache, 256);
  lineChart(id('state-chart'), {
    label: `Bytes over tokens: this model ${bytes(size)} at every length, a KV cache ${bytes(cache * tokens)} at ${count(tokens)} tokens and ${bytes(cache * far)} at ${count(far)}.`,
    x: { name: 'tokens', max: far, format: short },
    y: { name: 'bytes', max: cache * far, format: bytes, binary: true },
    series: [{ name: 'KV cache', kind: 'b', points: [[0, 0], [tokens, cache * tokens], [far, cache * far]] },
      { name: 'this model', kind: 'a', points: [[0, size], [tokens, size], [far, size]] }],
  });
  const lengths = [1e3, 1e4, 1e5, 1e6].filter((n) => n <= limit);
  id('state-table').hidden = !lengths.length;
  id('state-table').tBodies[0].replaceChildren(...lengths.map((n) => h('tr', {}, h('th', { scope: 'row' }, count(n)), h('td', {}, bytes(size)), h('td', {}, bytes(cache * n)))));
  id('state-fine').textContent = `Other transformers keep numbers of each token, the KV cache: at this shape ${bytes(cache)} a token. `
    + `This model keeps sums instead, which do not grow. Up to ${count(Math.ceil(size / cache))} tokens the cache is smaller.`;
}

async function list() {
  try {
    sessions = (await call('GET', '/v1/sessions?begin')).data;
  } catch (e) {
    id('sessions').replaceChildren(h('li', {}, explain(e)));
    return;
  }
  drawList();
}

function drawList() {
  const shown = new Set(panes.map((p) => p.id)), kept = recall(shelf, {});
  const rank = (s) => Math.max(s.used || 0, (kept[s.id]?.at || 0) / 1000);
  const rows = [...sessions].sort((a, b) => rank(b) - rank(a)).slice(0, 100).map((s) => {
    const name = nameOf(s.begin || '') || 'Session ' + s.id.slice(0, 8);
    return h('li', { class: shown.has(s.id) ? 'shown' : null },
      h('a', { href: '#write/' + s.id, 'aria-current': shown.has(s.id) ? 'true' : null },
        h('span', { class: 'snip' }, name), h('span', { class: 'size' }, `${count(s.tokens)} tokens${s.used ? ', ' + when(s.used) : ''}`)),
      h('button', { type: 'button', class: 'quiet', 'aria-label': 'Delete ' + name, onclick: () => remove(s.id, name) }, 'Delete'));
  });
  if (sessions.length > rows.length) rows.push(h('li', { class: 'fine' }, `and ${count(sessions.length - rows.length)} older ones`));
  if (!rows.length) rows.push(h('li', { class: 'fine' }, 'None yet.'));
  id('sessions').replaceChildren(...rows);
}

async function remove(sid, name) {
  if (!confirm(`Delete “${name}” from the server?`)) return;
  try {
    await call('DELETE', pathOf(sid));
  } catch (e) {
    if (e.status !== 404) {
      panes[0].status.textContent = explain(e);
      return;
    }
  }
  keep(sid, null);
  panes = panes.filter((p) => p.id !== sid);
  if (!panes.length) panes = [new Pane(null, 1)];
  await list();
  open();
}

// show opens the sessions of an address such as #write/ID/ID.
async function show(ids) {
  if (!panes.length) list();
  const wanted = [...new Set(ids.filter(Boolean))].slice(0, 2);
  if (panes.length && (!wanted.length || wanted.join() === panes.map((p) => p.id).join())) {
    open();
    return;
  }
  const next = [];
  let lost = '';
  for (const sid of wanted) {
    const pane = new Pane(sid, 1 + next.length);
    pane.record = stepsOf(sid);
    if (pane.record.words !== undefined) pane.words.value = pane.record.words;
    try {
      pane.status.textContent = (await pane.load()).trim();
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

// promise says what the flags of the server and the model hold.
function promise(f) {
  const kept = f.keeps_sessions
    ? 'The server keeps your texts on disk: they survive a reload of this page and a restart of the server.'
    : 'The server keeps your texts in memory: they survive a reload of this page, but not a restart of the server (--store keeps them).';
  const { trained_context: trained } = f;
  if (!trained) return kept;
  return kept + (f.beyond_context ? ` The model was trained on texts of ${count(trained)} tokens, behind which it writes worse.` : ` A text has at most ${count(limitOf(f))} tokens.`);
}

/** startWrite prepares the view and returns what shows the sessions of an address. */
export function startWrite(m) {
  model = m;
  id('write-lead').textContent = promise(m.farfield);
  window.addEventListener('storage', async (e) => { // another tab wrote on
    if (e.key && e.key !== shelf) return;
    for (const p of panes) {
      const kept = p.id && !p.stop && !p.isUnsure ? stepsOf(p.id) : null;
      if (!kept || kept.tokens === p.record.tokens || kept.words !== undefined) continue;
      p.record = kept;
      await p.load().catch(() => {});
    }
    render();
  });
  id('session-new').addEventListener('click', () => {
    for (const p of panes) p.stop?.abort();
    panes = [new Pane(null, 1)];
    open();
    panes[0].words.focus();
  });
  id('both-continue').addEventListener('click', () => panes.forEach((p) => p.node.querySelector('form').requestSubmit()));
  return show;
}
