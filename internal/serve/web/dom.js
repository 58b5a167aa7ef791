// Elements by hand: every text is a text node, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === 'class') node.setAttribute('class', value);
    else if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** h makes an element of HTML. */
export const h = (name, attributes, ...children) => build(document.createElement(name), attributes, children);

/** s makes an element of SVG. */
export const s = (name, attributes, ...children) => build(document.createElementNS(SVG, name), attributes, children);

/** id finds an element of index.html. */
export const id = (name) => document.getElementById(name);

const nbsp = '\u00a0'; // a number and its unit stay in one line

const group = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

/** count writes a whole number with separators. */
export const count = (n) => group.format(n);

/** short writes a number in at most four characters: 1.2k, 100k, 3M. */
export function short(n) {
  const scale = (x, unit) => (x < 9.95 ? String(Math.round(x * 10) / 10) : String(Math.round(x))) + unit;
  if (n >= 999.5e6) return scale(n / 1e9, 'G');
  if (n >= 999.5e3) return scale(n / 1e6, 'M');
  if (n >= 1e3) return scale(n / 1e3, 'k');
  return String(n < 99.5 ? Math.round(n * 10) / 10 : Math.round(n));
}

/** bytes writes a size: 512 B, 96 KiB, 1.5 GiB. */
export function bytes(n) {
  if (n < 1024) return Math.round(n) + nbsp + 'B';
  const units = ['KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let i = -1;
  do { n /= 1024; i++; } while (n >= 1023.5 && i < units.length - 1);
  return (n < 9.95 ? n.toFixed(1).replace(/\.0$/, '') : String(Math.round(n))) + nbsp + units[i];
}

/** border steps back from a place of a text that is within a character of two units. */
export const border = (text, at) => (at > 0 && at < text.length && /[\ud800-\udbff]/.test(text[at - 1]) ? at - 1 : at);

/** duration writes milliseconds: 0.42 ms, 12 ms, 1.5 s. */
export function duration(ms) {
  if (ms >= 995) return (ms / 1000).toFixed(ms < 9950 ? 1 : 0) + nbsp + 's';
  if (ms >= 9.95) return Math.round(ms) + nbsp + 'ms';
  return Number(ms.toPrecision(2)) + nbsp + 'ms';
}

/** percent writes a share. */
export const percent = (p) => (p > 0 && p < 0.0005 ? '<' + nbsp + '0.1' : (100 * p).toFixed(p >= 0.0995 ? 0 : 1)) + nbsp + '%';

/** chips are buttons that take an example. */
export const chips = (host, list, take) => host.replaceChildren(h('span', { class: 'fine' }, 'Try'), ...list.map((text) => h('button', { type: 'button', class: 'chip', onclick: () => take(text) }, text)));

/** recall reads a value that this browser keeps, or gives another. */
export function recall(key, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? otherwise;
  } catch {
    return otherwise; // site data are blocked
  }
}

/** remember keeps a value in this browser. */
export function remember(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch { /* blocked or full: it is shown until the page is left */ }
}

/** sleep waits. */
export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** swap enables one button and disables another, which hands its focus over. */
export function swap(on, off) {
  on.disabled = false;
  if (document.activeElement === off) on.focus();
  off.disabled = true;
}

/** explain writes an error for a person. */
export function explain(e) {
  if (e.name === 'AbortError') return 'Stopped.';
  const wait = e.retryAfter ? ` Try it after ${e.retryAfter} s.` : '';
  const message = e.message || String(e);
  return message.charAt(0).toUpperCase() + message.slice(1) + wait;
}
