// Times ONNX Runtime: a case on each line of standard input, a line with figures
// for each.
//
// A case is the JSON object that `farfield bench --json` prints, without
// figures: form ("mha" or "graph"), n, d, heads and threads say what to run, and
// "budget" for how many milliseconds (one call at least). The answer is the same
// object with ms, spread and gflops filled in, or with "error". The first line
// of the output tells the version and the settings.
//
// With the argument check, it compares both forms with the definition instead.
'use strict';
const ort = require(process.env.ONNXRUNTIME || 'onnxruntime-node');

// The protocol buffers that an ONNX model consists of, written by hand: a field
// is a number and a type, then a varint (type 0), four bytes (5), or bytes with
// their length before them (2).
const varint = (n) => {
  const bytes = [];
  for (; n > 127; n = Math.floor(n / 128)) bytes.push(n % 128 + 128);
  return Buffer.from([...bytes, n]);
};
const number = (field, n) => Buffer.concat([varint(field * 8), varint(n)]);
const float = (field, x) => {
  const b = Buffer.alloc(4);
  b.writeFloatLE(x);
  return Buffer.concat([varint(field * 8 + 5), b]);
};
const bytes = (field, b) => Buffer.concat([varint(field * 8 + 2), varint(b.length), b]);
const text = (field, s) => bytes(field, Buffer.from(s));
const message = (field, ...parts) => bytes(field, Buffer.concat(parts));

// Messages of onnx.proto, with its numbers of fields.
const intAttribute = (name, i) => message(5, text(1, name), number(3, i), number(20, 2));
const floatAttribute = (name, x) => message(5, text(1, name), float(2, x), number(20, 1));
const intsAttribute = (name, list) => message(5, text(1, name), ...list.map((i) => number(8, i)), number(20, 7));
const node = (op, inputs, output, attributes = [], domain = '') =>
  message(1, ...inputs.map((s) => text(1, s)), text(2, output), text(3, output), text(4, op), ...attributes, text(7, domain));
const FLOAT = 1;
const value = (field, name, shape) => {
  const dims = message(2, ...shape.map((n) => message(1, number(1, n))));
  return message(field, text(1, name), message(2, message(1, number(1, FLOAT), dims)));
};
const scalar = (name, x) => message(5, number(2, FLOAT), text(8, name), bytes(9, Buffer.from(Float32Array.of(x).buffer)));
const opset = (domain, version) => message(8, text(1, domain), number(2, version));
const model = (nodes, inputs, output, shape, constants) =>
  Buffer.concat([
    number(1, 8), // version of the format
    message(7, ...nodes, text(2, 'attention'), ...constants, ...inputs.map((s) => value(11, s, shape)), value(12, output, shape)),
    opset('', 17),
    opset('com.microsoft', 1),
  ]);

// chain returns a model of `links` attentions in a row, each one's output the
// next one's queries, so that what a call costs beside its work is shared.
const chain = (form, n, d, heads, links) => {
  const nodes = [];
  const shape = form === 'mha' ? [1, n, heads * d] : [1, heads, n, d];
  for (let i = 0; i < links; i++) {
    const q = i ? `o${i - 1}` : 'q';
    if (form === 'mha') {
      nodes.push(node('MultiHeadAttention', [q, 'k', 'v'], `o${i}`, [intAttribute('num_heads', heads), floatAttribute('scale', 1 / Math.sqrt(d))], 'com.microsoft'));
      continue;
    }
    nodes.push(node('Transpose', ['k'], `t${i}`, [intsAttribute('perm', [0, 1, 3, 2])]));
    nodes.push(node('MatMul', [q, `t${i}`], `s${i}`));
    nodes.push(node('Mul', [`s${i}`, 'scale'], `m${i}`));
    nodes.push(node('Softmax', [`m${i}`], `p${i}`, [intAttribute('axis', 3)]));
    nodes.push(node('MatMul', [`p${i}`, 'v'], `o${i}`));
  }
  const constants = form === 'mha' ? [] : [scalar('scale', 1 / Math.sqrt(d))];
  return { bytes: model(nodes, ['q', 'k', 'v'], `o${links - 1}`, shape, constants), shape, output: `o${links - 1}` };
};

const options = (threads) => ({
  intraOpNumThreads: threads,
  interOpNumThreads: 1,
  executionMode: 'sequential',
  graphOptimizationLevel: 'all',
  enableCpuMemArena: true,
  enableMemPattern: true,
});

const open = async (form, n, d, heads, threads, links, data) => {
  const m = chain(form, n, d, heads, links);
  const session = await ort.InferenceSession.create(m.bytes, options(threads));
  const feeds = {};
  for (const name of ['q', 'k', 'v']) feeds[name] = new ort.Tensor('float32', data(name), m.shape);
  const result = { [m.output]: new ort.Tensor('float32', new Float32Array(n * d * heads), m.shape) };
  return { session, call: () => session.run(feeds, result), output: result[m.output].data };
};

const seconds = async (call, repeats) => {
  const start = process.hrtime.bigint();
  for (let i = 0; i < repeats; i++) await call();
  return Number(process.hrtime.bigint() - start) / 1e9 / repeats;
};

const ROUND = 1e-3; // seconds of calls that are timed together, at least
const MOST_LINKS = 16;

// prepare opens a case, with so many links that a call takes a round, and makes
// the first calls.
const prepare = async (c) => {
  const random = () => Float32Array.from({ length: c.n * c.d * c.heads }, () => 2 * Math.random() - 1);
  let links = 1;
  for (;;) {
    const p = await open(c.form, c.n, c.d, c.heads, c.threads, links, random);
    let t = await seconds(p.call, 1);
    if (t < 20 * ROUND) t = await seconds(p.call, 1); // the first call fetches memory
    if (t >= ROUND || links >= MOST_LINKS) {
      return { ...p, links, repeats: Math.max(1, Math.ceil(ROUND / t)) };
    }
    await p.session.release();
    links = Math.min(MOST_LINKS, Math.ceil(links * ROUND / t));
  }
};

const quantile = (sorted, q) => {
  const at = q * (sorted.length - 1);
  const low = sorted[Math.floor(at)];
  return low + (sorted[Math.ceil(at)] - low) * (at % 1);
};

const measure = async (p, c) => {
  const times = [];
  const start = Date.now();
  while (!times.length || Date.now() - start < c.budget) times.push(await seconds(p.call, p.repeats) / p.links);
  times.sort((a, b) => a - b);
  const t = quantile(times, 0.5);
  return {
    ...c, ms: 1e3 * t, spread: (quantile(times, 0.75) - quantile(times, 0.25)) / t,
    gflops: 4 * c.n * c.n * c.d * c.heads / t / 1e9, best_ms: 1e3 * times[0], rounds: times.length, peak_gflops: null, share: null, extra_bytes: null,
  };
};

const DEFAULTS = { mechanism: 'softmax', order: 0, form: 'mha', causal: false, direction: 'forward', heads: 1, threads: 1, budget: 500 };
const KEEP = 4; // prepared cases

const serve = async () => {
  const settings = Object.entries(options('as given')).map(([k, v]) => `${k}=${v}`).join(' ');
  console.log(JSON.stringify({ impl: `onnxruntime ${ort.env.versions.common}`, settings }));
  const prepared = new Map();
  for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
    let c = JSON.parse(line);
    c = { ...DEFAULTS, ...c, impl: 'onnxruntime', m: c.n, dv: c.d, isa: '' };
    try {
      if (c.causal || c.direction !== 'forward' || c.mechanism !== 'softmax' || !['mha', 'graph'].includes(c.form)) {
        throw new Error('no such case here');
      }
      const key = [c.form, c.n, c.d, c.heads, c.threads].join();
      if (!prepared.has(key)) {
        while (prepared.size >= KEEP) {
          const [first, p] = prepared.entries().next().value;
          prepared.delete(first);
          await p.session.release();
        }
        prepared.set(key, await prepare(c));
      }
      console.log(JSON.stringify(await measure(prepared.get(key), c)));
    } catch (e) {
      console.log(JSON.stringify({ ...c, error: String(e.message || e) }));
    }
  }
};

// check holds both forms against the definition, in float64.
const check = async () => {
  const [n, d, heads] = [40, 8, 3];
  const data = {};
  for (const name of ['q', 'k', 'v']) data[name] = Float32Array.from({ length: heads * n * d }, () => 2 * Math.random() - 1);
  for (const form of ['mha', 'graph']) {
    const at = form === 'mha' ? (h, i, j) => (i * heads + h) * d + j : (h, i, j) => (h * n + i) * d + j;
    const p = await open(form, n, d, heads, 1, 1, (name) => data[name]);
    await p.call();
    let worst = 0;
    for (let h = 0; h < heads; h++) {
      for (let i = 0; i < n; i++) {
        const weights = [];
        for (let m = 0; m < n; m++) {
          let s = 0;
          for (let j = 0; j < d; j++) s += data.q[at(h, i, j)] * data.k[at(h, m, j)];
          weights.push(Math.exp(s / Math.sqrt(d)));
        }
        const sum = weights.reduce((a, b) => a + b);
        for (let j = 0; j < d; j++) {
          const want = weights.reduce((a, w, m) => a + w * data.v[at(h, m, j)], 0) / sum;
          worst = Math.max(worst, Math.abs(want - p.output[at(h, i, j)]));
        }
      }
    }
    console.log(`${form}: ${worst.toExponential(1)}`);
    if (!(worst < 1e-5)) process.exitCode = 1;
  }
};

process.argv[2] === 'check' ? check() : serve();
