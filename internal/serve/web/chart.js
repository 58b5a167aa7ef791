// Charts of lines, as plain SVG: drawn to the width of their place, read by pointer,
// by arrow keys and as a table.

import { h, s } from './dom.js';

const specs = new WeakMap();
const watcher = new ResizeObserver((entries) => {
  for (const e of entries) {
    const drawn = specs.get(e.target);
    if (drawn && Math.abs(drawn.width - e.contentRect.width) > 1) draw(e.target, drawn.spec);
  }
});

// linearTicks are round steps of base 10 or, for bytes, of powers of two.
function linearTicks(max, n, binary) {
  if (!(max > 0)) return [0];
  let unit = 1;
  if (binary) while (unit * 1024 <= max) unit *= 1024;
  const rough = max / unit / n;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((m) => m * power >= rough) * power * unit;
  const list = [];
  for (let v = 0; v <= max * 1.0001; v += step) list.push(v);
  return list;
}

function logTicks(min, max, base) {
  const list = [];
  for (let k = Math.ceil(Math.log(min) / Math.log(base) - 1e-9); base ** k <= max * 1.0001; k++) list.push(base ** k);
  const every = Math.ceil(list.length / 7);
  return list.filter((_, i) => i % every === 0);
}

function axis(a, length) {
  if (a.log) {
    const low = Math.log(a.min), high = Math.log(a.max);
    return { at: (v) => ((Math.log(v) - low) / (high - low || 1)) * length, ticks: logTicks(a.min, a.max, a.base || 10) };
  }
  return { at: (v) => (v / (a.max || 1)) * length, ticks: linearTicks(a.max, Math.max(2, length / (a.spacing || 55)), a.binary) };
}

function draw(host, spec) {
  const width = Math.max(240, host.clientWidth || 320), height = spec.height || 230;
  specs.set(host, { spec, width: host.clientWidth });
  const m = { top: 26, right: 14, bottom: 38, left: 58 };
  const w = width - m.left - m.right, ht = height - m.top - m.bottom;
  const x = axis({ spacing: 70, ...spec.x }, w), y = axis({ spacing: 42, ...spec.y }, ht);
  const px = (v) => m.left + x.at(v), py = (v) => m.top + ht - y.at(v);

  const root = s('svg', { class: 'chart', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', tabindex: 0, 'aria-label': spec.label });
  for (const t of y.ticks) {
    root.append(s('line', { class: 'grid', x1: m.left, x2: m.left + w, y1: py(t), y2: py(t) }),
      s('text', { class: 'tick', x: m.left - 8, y: py(t), dy: '0.32em', 'text-anchor': 'end' }, spec.y.format(t)));
  }
  for (const t of x.ticks) {
    if (px(t) > m.left + w + 1) continue;
    root.append(s('text', { class: 'tick', x: px(t), y: m.top + ht + 17, 'text-anchor': 'middle' }, spec.x.format(t)));
  }
  root.append(s('line', { class: 'axis', x1: m.left, x2: m.left + w, y1: m.top + ht, y2: m.top + ht }),
    s('text', { class: 'name', x: m.left + w, y: height - 4, 'text-anchor': 'end' }, spec.x.name),
    s('text', { class: 'name', x: m.left, y: 12 }, spec.y.name));

  const labels = [];
  for (const line of spec.series) {
    const points = line.points.filter(([a, b]) => a >= (spec.x.min || 0) && a <= spec.x.max * 1.0001 && (!spec.y.log || b > 0));
    if (!points.length) continue;
    const d = points.map(([a, b], i) => `${i ? 'L' : 'M'}${px(a).toFixed(1)} ${py(b).toFixed(1)}`).join('');
    root.append(s('path', { class: `line ${line.kind}${line.dashed ? ' dashed' : ''}`, d }));
    if (line.dots) for (const [a, b] of points) root.append(s('circle', { class: `dot ${line.kind}`, cx: px(a), cy: py(b), r: 3.5 }));
    if (line.name) {
      const [a, b] = points[points.length - 1], before = points[points.length - 2];
      const isSteep = before && (py(before[1]) - py(b)) / (px(a) - px(before[0])) > 0.3;
      const top = Math.min(...points.filter(([v]) => px(v) > px(a) - 70).map(([, v]) => py(v))); // of the line below the label
      labels.push({ line, x: px(a) - (isSteep ? 14 : 0), y: isSteep ? py(b) + 4 : top - 8 });
    }
  }
  labels.sort((a, b) => a.y - b.y);
  labels.forEach((l, i) => {
    if (i && l.y - labels[i - 1].y < 15) l.y = labels[i - 1].y + 15;
    l.y = Math.min(Math.max(l.y, m.top + 8), m.top + ht - 6);
    const end = l.x > m.left + w / 2;
    root.append(s('text', { class: `series ${l.line.kind}`, x: l.x + (end ? -2 : 8), y: l.y, 'text-anchor': end ? 'end' : 'start' }, l.line.name));
  });

  const cross = s('line', { class: 'cross', y1: m.top, y2: m.top + ht, x1: 0, x2: 0, visibility: 'hidden' });
  root.append(cross);
  const readout = h('p', { class: 'readout', role: 'status' });
  reading(root, cross, readout, spec, (v) => px(v));
  host.classList.add('plot');
  host.replaceChildren(root, readout, ...(spec.table ? [table(spec)] : []));
}

// stops are all lengths at which some line has a point of its own.
function stops(spec) {
  const set = new Set();
  for (const line of spec.series) if (!line.dashed) for (const [a] of line.points) set.add(a);
  return [...set].sort((a, b) => a - b);
}

function reading(root, cross, readout, spec, px) {
  const at = stops(spec);
  let chosen = -1;
  const show = (i) => {
    if (!at.length) return;
    chosen = Math.min(Math.max(i, 0), at.length - 1);
    const v = at[chosen];
    cross.setAttribute('x1', px(v));
    cross.setAttribute('x2', px(v));
    cross.setAttribute('visibility', 'visible');
    const parts = [`${spec.x.format(v)} ${spec.x.name}`];
    for (const line of spec.series) {
      const p = line.points.find(([a]) => a === v);
      if (p && line.name) parts.push(`${line.name} ${spec.y.format(p[1])}`);
    }
    readout.textContent = parts.join(' · ');
  };
  root.addEventListener('pointermove', (e) => {
    const box = root.getBoundingClientRect();
    const mouse = ((e.clientX - box.left) / box.width) * root.viewBox.baseVal.width;
    let best = 0;
    at.forEach((v, i) => { if (Math.abs(px(v) - mouse) < Math.abs(px(at[best]) - mouse)) best = i; });
    show(best);
  });
  root.addEventListener('pointerleave', () => {
    cross.setAttribute('visibility', 'hidden');
    readout.textContent = '';
  });
  root.addEventListener('keydown', (e) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!step) return;
    e.preventDefault();
    show(chosen + step);
  });
}

function table(spec) {
  const lines = spec.series.filter((l) => l.name && !l.dashed);
  const head = h('tr', {}, h('th', { scope: 'col' }, spec.x.name), ...lines.map((l) => h('th', { scope: 'col' }, l.name)));
  const rows = stops(spec).map((v) => h('tr', {}, h('th', { scope: 'row' }, spec.x.format(v)), ...lines.map((l) => {
    const p = l.points.find(([a]) => a === v);
    return h('td', {}, p ? spec.y.format(p[1]) : '');
  })));
  return h('details', {}, h('summary', {}, 'Numbers'), h('table', { class: 'numbers' }, h('thead', {}, head), h('tbody', {}, ...rows)));
}

/** lineChart draws spec into host, and draws it anew when the width of host changes. */
export function lineChart(host, spec) {
  const open = host.querySelector('details[open]') !== null;
  draw(host, spec);
  if (open) host.querySelector('details')?.setAttribute('open', '');
  watcher.observe(host);
}

/** bar is a share from 0 to 1 as a bar, split in the parts of kinds. */
export function bar(parts) {
  const root = s('svg', { class: 'bar', viewBox: '0 0 100 8', preserveAspectRatio: 'none', 'aria-hidden': 'true', focusable: 'false' },
    s('rect', { class: 'track', x: 0, y: 0, width: 100, height: 8 }));
  let x = 0;
  for (const [kind, share] of parts) {
    root.append(s('rect', { class: kind, x: 100 * x, y: 0, width: Math.max(0, 100 * share), height: 8 }));
    x += share;
  }
  return root;
}
