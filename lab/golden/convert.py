"""Converts published fixtures to the one format that package golden reads.

    python3 convert.py FIXTURES FOLDER [NAME ...]

FIXTURES has the folders poly and zoo, whose READMEs define the arrays. Without names all files are
converted, but for modules with projections, which modules.py converts. Needs no library.
"""

import ast
import json
import math
import os
import random
import re
import struct
import sys
import zipfile
from array import array

CODES = {"<f4": "f", "<f8": "d", "<i8": "q", "|u1": "B"}


class Array:
    """An array of a file: its type, its shape and its elements in C order."""

    def __init__(self, data, shape, kind="<f8"):
        self.kind, self.shape = kind, tuple(shape)
        self.data = data if isinstance(data, array) else array(CODES[kind], data)
        assert len(self.data) == math.prod(self.shape), (len(self.data), shape)

    def item(self):
        assert len(self.data) == 1
        return self.data[0]

    def nested(self):
        x = list(self.data)
        for n in reversed(self.shape[1:]):
            x = [x[i : i + n] for i in range(0, len(x), n)]
        return x

    def reshape(self, *shape):
        return Array(self.data, shape, self.kind)

    def each(self, f):
        """Returns the array of f(i, x) for element i."""
        return Array([f(i, x) for i, x in enumerate(self.data)], self.shape)

    def tokens(self, b, n):
        """Returns the first n tokens of batch row b of an array (B,H,N,D)."""
        return of([[head[:n] for head in self.nested()[b]]])

    def rows(self, places):
        """Returns the rows of a matrix in another order."""
        x = self.nested()
        return of([x[i] for i in places])

    def split(self, heads):
        """Returns an array (B,N,H*D) as (B,H,N,D)."""
        d = self.shape[2] // heads
        return of([[[row[h * d : (h + 1) * d] for row in batch] for h in range(heads)] for batch in self.nested()])


def of(x):
    """Returns nested lists of numbers as an Array."""
    shape, flat = [], x
    while isinstance(flat, list):
        shape.append(len(flat))
        flat = flat[0]
    for _ in shape[1:]:
        x = [y for part in x for y in part]
    return Array(x, shape)


def load(path):
    arrays = {}
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            b = z.read(name)
            end = 10 + struct.unpack("<H", b[8:10])[0]
            head = ast.literal_eval(b[10:end].decode())
            data = array(CODES[head["descr"]])
            data.frombytes(b[end:])
            arrays[name.removesuffix(".npy")] = Array(data, head["shape"], head["descr"])
    return arrays


def save(path, arrays):
    with zipfile.ZipFile(path, "w") as z:
        for name, x in arrays.items():
            head = str({"descr": x.kind, "fortran_order": False, "shape": x.shape})
            head += " " * (-(11 + len(head)) % 64) + "\n"
            member = zipfile.ZipInfo(name + ".npy", (1980, 1, 1, 0, 0, 0))
            z.writestr(member, b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + x.data.tobytes())


class File:
    """The cases of a file and their arrays."""

    def __init__(self, name, src, shared=()):
        self.name, self.src, self.cases = name, src, []
        self.out = {to: src[x] for to, x in dict(shared).items() if x in src}

    def case(self, name, mechanism, want, arrays=(), **fields):
        """Adds a case. want and arrays map names of the format to arrays, or to names of the source that may be absent."""
        found = {}
        for what, x in list(dict(want).items()) + list(dict(arrays).items()):
            if isinstance(x, Array):
                found[what] = x
            elif x in self.src:
                found[what] = self.src[x]
        self.out.update({f"{name}.{what}": x for what, x in found.items()})
        c = {"case": name, "mechanism": mechanism, **fields, "want": [w for w in want if w in found]}
        c["set"] = {k: text(x) for k, x in fields.get("set", {}).items()}
        self.cases.append({k: x for k, x in c.items() if x not in (None, False, {}, 0)})

    def skip(self, name, reason):
        self.cases.append({"case": name, "skip": reason})

    def write(self, folder):
        lines = ",\n".join(json.dumps(c) for c in self.cases)
        with open(os.path.join(folder, self.name + ".json"), "w") as f:
            f.write(f"[\n{lines}\n]\n")
        if self.out and any("want" in c for c in self.cases):
            save(os.path.join(folder, self.name + ".npz"), self.out)


def text(x):
    """Returns a setting as the command has it."""
    if isinstance(x, bool):
        return str(x).lower()
    if isinstance(x, (list, tuple, array)):
        return ",".join(text(y) for y in x)
    return x if isinstance(x, str) else repr(x).removesuffix(".0")


def taylor(p):
    return [1 / math.factorial(i) for i in range(p + 1)]


def lower(n, m):
    """Query i sees the keys j <= i + m - n."""
    return Array([int(j <= i + m - n) for i in range(n) for j in range(m)], (n, m), "|u1")


def drawn(seed, *shape):
    """Returns normal numbers that float32 can hold."""
    r = random.Random(seed)
    return Array(array("d", array("f", [r.gauss(0, 1) for _ in range(math.prod(shape))])), shape)


ALL = ["direct", "linear", "step"]

# The normalisations of FAST's authors' programs: the setting, the scale and the coefficients; None: Taylor's.
AUTHORS = {
    "reproducing_score_function_norm1": ("token-centred", 1, None),
    "reproducing_score_function_2_norm1": ("channel-centred", 1, None),
    "reproducing_JAX_norm1": ("global-centred", 1, None),
    "fastmax_example_norm1_lim1": ("max", 1, None),
    "fastmax_example_norm1_lim2_abc": ("max", 4, [1, 1.166666, 0.145833]),
    "Fastmax_cuda_intended": ("max-squared", 1, None),
}


def poly(f, key):
    """Adds the case of the output o_KEY of a polynomial."""
    s, n, m, d = f.src, f.src["q"].shape[-2], f.src["k"].shape[-2], f.src["q"].shape[-1]
    want = {"o": "o_" + key, "den": "g_" + key, **{g: f"{g}_{key}" for g in ("dq", "dk", "dv", "dlog_g")}}
    if key in ("direct", "efficient", "causal", "outnorm") and "tau" in s:
        end = {"causal": "_causal", "outnorm": "_outnorm"}.get(key, "")
        rows = s["o_" + key].shape[-2]  # a file may hold the outputs of the first queries alone
        q = of([h[:rows] for h in s["q"].nested()])
        f.case(key, "taylorshift", {"o": "o_" + key, **{g: g + end for g in ("dq", "dk", "dv", "dtau")}}, {"q": q} if rows < n else {},
            heads=len(s["tau"].data), causal=key == "causal", forms=ALL, set={"output_norm": True} if key == "outnorm" else {},
            book=dict(norm="unit", scale=1, coef=taylor(2), positive=True, output_norm=key == "outnorm"))
    elif match := re.fullmatch(r"p(\d+)_(full|causal|causal_offset|keymask)", key):
        p = int(match[1])
        f.case(key, "fastmax", want, {"key_mask": "keymask"} if match[2] == "keymask" else {}, order=p, causal="causal" in match[2], forms=ALL,
            book=dict(norm="standard", scale=1, coef=taylor(p)))
    elif match := re.fullmatch(r"(elem|1d|quadratic)_p(\d)_(full|causal)", key):
        p, (kind, mask) = int(match[2]), {"elem": ("element", "1"), "1d": ("token", "tok"), "quadratic": ("product", "2")}[match[1]]
        f.case(key, "fastmax", want, {"drop_q": "mask_q" + mask, "drop_k": "mask_k" + mask}, order=p, causal=match[3] == "causal", drop=kind,
            rate=s["rate"].item(), forms=ALL if kind != "product" else ALL[:2], book=dict(norm="standard", scale=1, coef=taylor(p)))
    elif key in ("softmax_full", "softmax_causal"):
        f.case(key, "softmax", want, causal=key == "softmax_causal", forms=["direct", "step"], book=dict(exp=True, positive=True))
    elif key == "last":
        book = dict(norm="standard", scale=1, coef=taylor(2))
        f.case(key, "fastmax", want, {"q": of(s["q"].nested()[-1:])}, order=2, causal=True, forms=ALL, book=book)
        moments(f, book)
    elif "_ascoded" in key:
        f.skip(key, "a defect of the authors' program, not its formula")
    elif match := re.fullmatch(r"(based|power|taylor)(\d?)_(full|causal|decay_causal)", key):
        p = int(match[2] or 2)
        name, coef = {"based": "based", "power": "power", "taylor": "sata"}[match[1]], taylor(p)
        if name == "power":
            coef = [0] * p + [1]
        decay = {"log_g": s["log_g"].reshape(*s["log_g"].shape, 1)} if match[3] == "decay_causal" else {}
        f.case(key, name, want, decay, order=0 if name == "based" else p, causal=match[3] != "full", forms=ALL, book=dict(scale=d**-0.5, coef=coef))
    elif match := re.fullmatch(r"(\w+)_p(\d)_(full|causal)", key):
        causal, arrays, coef, forms = match[3] == "causal", {}, taylor(int(match[2])), ALL
        norm, scale = "", {"reproducing_einops_raw": 1, "reproducing_score_function_norm0": d**-0.5 / 8}.get(match[1])
        if scale is None:
            norm, scale, own = AUTHORS[match[1]]
            coef, forms = own or coef, ALL[:2]  # no state
            if causal:  # their statistics see the future, which a causal call does not: it is a mask of pairs
                causal, arrays, forms = False, {"attn_keep": lower(n, m)}, ["direct"]
        f.case(key, "polynomial", want, arrays, causal=causal, forms=forms, book=dict(norm=norm, scale=scale, coef=coef),
            set={"norm": norm or "none", "coef": coef, "scale": scale})
    else:
        f.skip(key, "no mechanism here computes it")


def moments(f, book):
    """Adds the moments of keys as the outputs of queries that span all features. A further key of zeros has the
    weight 1 and the only value of a further channel, which thus shows the denominator of a state."""
    s, d, dv = f.src, f.src["k"].shape[1], f.src["v"].shape[1]
    x1, x2, x3 = s["x1"].data, s["x2"].reshape(dv, d).nested(), s["x3"].reshape(dv, d, d).nested()
    y1, y2, y3 = s["y1"].item(), s["y2"].data, s["y3"].reshape(d, d).nested()
    q, o, den = drawn(f.name, d * (d + 1) // 2 + 9, d), [], []
    for row in q.nested():
        mean = sum(row) / d
        size = math.sqrt(sum((x - mean) ** 2 for x in row) / d)
        a = [(x - mean) / size for x in row]
        read = lambda one, two, three: one + math.fsum(x * y for x, y in zip(a, two)) + math.fsum(
            a[m] * a[l] * three[m][l] for m in range(d) for l in range(d)) / 2
        g = read(y1, y2, y3) + 1
        den.append(g)
        o.append([read(x1[j], x2[j], x3[j]) / g for j in range(dv)] + [1 / g])
    k, v = s["k"].nested() + [[0.0] * d], [row + [0.0] for row in s["v"].nested()] + [[0.0] * dv + [1.0]]
    f.case("moments", "fastmax", {"o": of(o), "den": Array(den, [len(den)])}, {"q": q, "k": of(k), "v": of(v)}, order=2, forms=ALL + ["state"], book=book)


def convert_poly(name, src):
    f = File(name, src, {x: x for x in ("q", "k", "v", "do", "tau")})
    for key in sorted(x[2:] for x in src if x.startswith("o_")):
        poly(f, key)
    return f


COUPLES = "its pseudo-inverse starts from a number of the whole batch, so that rows depend on each other"
LEAKS = "it is not causal: sorting moves the borders of chunks by later tokens, too"
NAMES = {"v": "v", "q": "q", "k": "k", "do": "go", "key_lens": "key_lengths", "attn_keep": "attn_keep"}
WANT = {"o": "out", "dq": "d_q", "dk": "d_k", "dv": "d_v"}


class Zoo(File):
    """A file with one call."""

    def __init__(self, name, src, entry):
        super().__init__(name, src, NAMES)
        self.tolerance = [entry["tolo"] or 1e-5, entry["tolg"] or 1e-5]
        self.causal = "causal" in src and src["causal"].item() != 0

    def get(self, name, default=None):
        return self.src[name].item() if name in self.src else default

    def add(self, mechanism, set=(), params=(), want=(), arrays=(), name=None, forms=None, causal=None, **fields):
        """Adds a case. params are learned arrays, which have gradients; the other forms are of mechanisms of whole heads."""
        causal = self.causal if causal is None else causal
        params = dict(params) if isinstance(params, dict) else {x: x for x in params}
        wanted = {**WANT, **dict(want), **{"d" + to: "d_" + x for to, x in params.items()}}
        self.case(name or self.name, mechanism, wanted, {**dict(arrays), **params}, causal=causal, forms=forms or (["direct", "step"] if causal else ["direct"]),
            tolerance=self.tolerance, set=dict(set), **fields)


def softmax(f):
    f.add("softmax", {"scale": f.get("scale")}, want={"den": "lse"}, forms=ALL[:1] if "attn_keep" in f.src else ["direct", "step"],
        book=dict(exp=True, scale=f.get("scale")))


def linear(f):
    s = f.src
    if "eps" not in s:  # the causal product alone
        return retention(f, [1.0] * s["q"].shape[1])
    den = "den"
    if "key_lengths" in s and 0 in s["key_lengths"].data:  # of queries without keys the denominator is a convention
        row = len(s["den"].data) // s["q"].shape[0]
        den = s["den"].each(lambda i, x: x if s["key_lengths"].data[i // row] else math.nan)
    f.add("linear", {"eps": f.get("eps")}, want={"den": den}, forms=ALL)
    if "state_S" not in s:
        return
    # Sums of a state as outputs, with a further key of zeros: see moments.
    b, h, _, d = s["k"].shape
    q = drawn(f.name, b, h, d + 4, d)
    for i, at in enumerate(s["state_steps"].data):
        S, Z, o = s["state_S"].nested()[i], s["state_Z"].nested()[i], []
        for x, head in enumerate(y for batch in q.nested() for y in batch):
            sums, ones = S[x // h][x % h], Z[x // h][x % h]
            for row in head:
                phi = [y + 1 if y > 0 else math.exp(y) for y in row]
                own = math.fsum(phi)
                g = math.fsum(p * z for p, z in zip(phi, ones)) + own + f.get("eps")
                o += [math.fsum(p * line[c] for p, line in zip(phi, sums)) / g for c in range(len(sums[0]))] + [own / g]
        k = of([[y[: at + 1] + [[0.0] * d] for y in batch] for batch in s["k"].nested()])
        dv = s["v"].shape[3]
        v = of([[[r + [0.0] for r in y[: at + 1]] + [[0.0] * dv + [1.0]] for y in batch] for batch in s["v"].nested()])
        f.add("linear", {"eps": f.get("eps")}, want={"o": Array(o, (b, h, d + 4, dv + 1)), "dq": "", "dk": "", "dv": ""},
            arrays={"q": q, "k": k, "v": v}, name=f"state{at}", forms=ALL[:2] + ["state"], causal=False)


def retention(f, gamma=None):
    f.add("retention", {"scale": 1, "gamma": gamma or f.src["gamma"].data}, causal=True, forms=ALL)
    if "state" in f.src:  # unit vectors read its rows
        b, h, _, d = f.src["q"].shape
        one = [[float(i == j) for j in range(d)] for i in range(d)]
        f.add("retention", {"scale": 1, "gamma": f.src["gamma"].data}, want={"o": "state", "dq": "", "dk": "", "dv": ""},
            arrays={"q": of([[one] * h] * b)}, name="state", forms=["state"])


def retnet(f):
    """A module whose program divides each row of scores, which cancels in the norm of heads but for its epsilon."""
    s, width, heads = f.src, f.src["x"].shape[2], f.get("heads")
    d = width // heads
    # Pairs of channels stand beside one another in the file; ours are the halves of a head.
    place = [i // d * d + i % d % (d // 2) * 2 + i % d // (d // 2) for i in range(width)]
    want, arrays = {"o": "out", "dx": "d_x"}, {"x": "x"}
    for ours, theirs in {"q_proj": "Wq", "k_proj": "Wk", "v_proj": "Wv", "g_proj": "Wg", "out_proj": "Wo"}.items():
        order = place if theirs in ("Wq", "Wk") else range(s[theirs].shape[0])
        arrays[ours + ".weight"], want[f"d{ours}.weight"] = s[theirs].rows(order), s["d_" + theirs].rows(order)
    f.case(f.name, "retnet", want, arrays, layer=True, heads=heads, length=s["x"].shape[1], forms=["direct", "step"], tolerance=f.tolerance,
        set={"expand": s["Wv"].shape[0] // width, "eps": f.get("ln_eps")})


def performer(f):
    s, d = f.src, f.src["q"].shape[3] if "q" in f.src else 0
    if not d:
        return "a projection alone, which mechanism.TestOrthogonalFeaturesMatchGoldenFile compares"
    if "value_lengths" in s:
        return "a defect of the authors' program: keys beyond the length stay in the denominator"
    if f.name == "rff_gaussian":
        across = s["omega"].nested()
        rows, h = len(across[0]), s["q"].shape[1]
        r = of([[[across[c][i] for c in range(d)] for i in range(rows)]] * h)
        return f.add("rfa", {"norm": "none", "tau": f.get("softmax_temp") ** -0.5, "eps": f.get("eps"), "features": rows},
            arrays={"R": r, "sigma": Array([1] * (h * d), (h, d))}, heads=h, width=d, forms=ALL)
    kernel, scale, eps, feature_eps = "softmax", d**-0.5, f.get("eps", 0), f.get("feature_eps", 0)
    if "W" in s:
        w = s["W"]
        kernel = "relu" if f.get("kernel") else kernel
        whole = kernel == "softmax" and (feature_eps != 0 or f.get("stabilise", 0) != 0)
        if whole and f.causal:
            return "a defect of the authors' program: the largest exponent of keys is over later ones, too"
        code = whole or kernel == "relu" and f.get("den_eps", 0) != 0
    else:
        w = of([list(c) for c in zip(*s["omega"].nested())])
        kernel, scale = ("hyperbolic", f.get("softmax_temp")) if "softmax_temp" in s else ("relu", 1)
        whole = code = f.name == "favor_hyperbolic_stab1"
    set = {"kernel": kernel, "features": w.shape[0], "scale": scale}
    set.update({"form": "code"} if code else {"eps": eps, "feature_eps": feature_eps})
    f.add("performer", set, arrays={"projection": w}, width=d, forms=None if whole else ALL)


def rfa(f):
    s, (_, h, _, d) = f.src, f.src["q"].shape
    set, want, arrays = {"features": len(s["R"].data) // (h * d)}, {"den": "den"}, {"R": "R"}
    if "sigma" not in s:
        set.update(kernel="arccos", eps=f.get("eps"))
        arrays["sigma"] = Array([1] * (h * d), (h, d))
    elif "den_min" in s:
        assert (f.get("phi_scale"), f.get("norm_eps")) == (0.1, 1e-3) and f.get("den_min") in (1, 1e-3)
        set["form"] = "code-masked" if f.get("den_min") == 1e-3 else "code-cross" if f.get("abs_den") else "code"
    if "tau" in s:
        set["tau"] = f.get("tau")
    if "gate_logit" in s:  # l = log s(x) is the decay of a call, and dx = dl (1 - s(x))
        x = s["gate_logit"]
        set["gate"] = True
        arrays["log_g"] = x.each(lambda i, y: -math.log1p(math.exp(-y))).reshape(*x.shape, 1)
        want["dlog_g"] = s["d_gate_logit"].each(lambda i, y: y * (1 + math.exp(x.data[i])))
    f.add("rfa", set, params=["sigma"] if "sigma" in s else [], want=want, arrays=arrays, heads=h, width=d, forms=ALL)


def linformer(f):
    shape, share = f.src["E"].shape, {} if "F" in f.src else {"share": "kv"}
    f.add("linformer", {"rank": shape[1], "columns": "all", **share}, params=["E", "F"], length=shape[0])


def fourier(f):
    f.add("fourier", {"eps": f.get("eps"), "scaled": f.get("cpu_scale") != 0, "channels": len(f.src["R"].data) > 1}, params=["R"], width=f.src["q"].shape[3])


def local(f):
    set = {"scale": f.get("scale"), "window": f.get("window")}
    if "back" in f.src:
        set.update(form="block", back=f.get("back"), forward=f.get("fwd"), exact=f.get("exact", 0) != 0)
    f.add("local", set, heads=f.src["q"].shape[1], width=f.src["q"].shape[3])


def patterns(f):
    s, set, of = f.src, {"scale": f.get("scale")}, dict(heads=f.src["q"].shape[1], width=f.src["q"].shape[3])
    if "segments" in s:
        f.add("longnet", {**set, "segments": s["segments"].data, "ratios": s["ratios"].data, "form": "code"}, **of)
    elif "span" in s:
        f.add("adaptive-span", {**set, "ramp": f.get("ramp")}, params=["span"], causal=True, **of)
    elif "global_tokens" in s:
        f.add("longformer", {**set, "window": f.get("window"), "global": s["global_tokens"].data}, **of)
    elif "c" in s:
        f.add("sparse-fixed", {**set, "stride": f.get("stride"), "c": f.get("c")}, causal=True, **of)
    elif "stride" in s:
        f.add("sparse-strided", {**set, "stride": f.get("stride")}, causal=True, **of)
    else:
        f.add("transformer-xl", {**set, "memory": s["r"].shape[1]}, params=["r", "u", "vb"], causal=True, **of)


def nystrom(f):
    s = f.src
    if "q" not in s or f.get("init_global"):
        return COUPLES
    set, want, arrays = {"landmarks": f.get("landmarks"), "iterations": f.get("iters"), "form": "code"}, {}, {}
    if "conv" in s:
        set["conv"] = s["conv"].shape[1]
    if "mask" in s:  # the file has no queries, and no gradients of them, where keys are masked
        b, h, n, d = s["q"].shape
        is_masked = lambda i: s["mask"].data[i // (h * n * d) * n + i // d % n] == 0
        arrays["key_mask"] = Array([int(x != 0) for x in s["mask"].data], (b, n), "|u1")
        arrays["q"] = s["q"].each(lambda i, x: 0 if is_masked(i) else x)
        want["dq"] = s["d_q"].each(lambda i, x: math.nan if is_masked(i) else x)
    f.add("nystrom", set, params=["conv"], want=want, arrays=arrays, heads=s["q"].shape[1])


def informer(f):
    s = f.src
    if f.causal:
        return "it is not causal: which queries are computed depends on later tokens"
    sample, keys, length = s["index_sample"].nested(), s["k"].shape[2], max(s["q"].shape[2], s["k"].shape[2])
    columns = min(length, max(1, f.get("factor") * math.ceil(math.log(length))))
    rows = [[(j + 0.5) / keys for j in row] + [0.0] * (columns - len(row)) for row in sample]
    rows += [[0.0] * columns] * (length - len(rows))
    f.add("informer", {"factor": f.get("factor"), "form": "code", "sample": "stored"}, arrays={"sample": of(rows)}, length=length)


def eva(f):
    s, set = f.src, {"window": f.get("window"), "overlap": f.get("ext"), "form": "code"}
    params = {"mq": "Wmq_w", "mq_bias": "Wmq_b", "lnq": "lnq_w", "lnq_bias": "lnq_b", "mk": "Wmk_w", "mk_bias": "Wmk_b", "lnk": "lnk_w", "lnk_bias": "lnk_b"}
    arrays, each = {"key_lens": "lengths"}, None
    if "rf_window" in s:
        set["landmarks"] = s["q"].shape[2] // f.get("rf_window")
    else:
        set["chunk"] = f.get("chunk")
    if "rpe" in s:
        set["rpe"], params["rpe"] = True, "rpe"
    if "noise" in s:
        set["noise"], arrays["noise"], each = "normal", "noise", "noise"
    f.add("eva", set, params=params, arrays=arrays, heads=s["q"].shape[1], width=s["q"].shape[3], causal="chunk" in s, each=each)


def clustered(f):
    s = f.src
    if "kind" not in s:  # what clusters are measured against
        return f.add("exact-topk", {"topk": f.get("topk"), "scale": f.get("scale")})
    if f.get("kind") > 1:
        return "it is not causal: clusters are made of later queries, too"
    places, d = s["init_idx"].data, s["q"].shape[3]
    name, set = "clustered", {"iterations": f.get("iterations"), "scale": f.get("scale"), "bits": s["planes"].shape[0], "clusters": len(places)}
    if f.get("kind") == 1:
        name, set["topk"] = "improved-clustered", s["topk"].shape[3]
    start = lambda n: Array([(x + 0.5) / n for x in places], [len(places)])  # the middle of what rounds to an index
    if "query_lengths" not in s:
        return f.add(name, set, arrays={"planes": "planes", "start": start(s["q"].shape[2])}, width=d)
    for b, n in enumerate(s["query_lengths"].data):  # others have the output 0
        keys, cut = s["k"].shape[2], {"q": "q", "do": "go", "o": "out", "dq": "d_q"}
        cut = {to: s[x].tokens(b, n) for to, x in cut.items()} | {to: s[x].tokens(b, keys) for to, x in {"k": "k", "v": "v", "dk": "d_k", "dv": "d_v"}.items()}
        lens = {"key_lens": Array(s["key_lengths"].data[b : b + 1], [1], "<i8")} if "key_lengths" in s else {}
        f.add(name, set, want={x: cut.pop(x) for x in WANT}, arrays={**cut, **lens, "planes": "planes", "start": start(n)}, width=d, name=f"row{b}")


def reformer(f):
    s, name = f.src, "qk" if "qk" in f.src else "q"
    d, n = s[name].shape[-1], s[name].shape[-2]
    arrays, want = {"q": name, "k": name}, {"dq": "d_" + name}
    set = {"form": "paper", "repeats": "once", "self": "alone", "masks": "absent"}
    if "rotations" in s:
        if f.causal:
            return LEAKS
        if not f.get("across"):
            return "no setting here hides the other buckets of a chunk"
        _, rounds, axes = s["rotations"].shape
        arrays["rotations"] = of([list(c) for c in zip(*s["rotations"].reshape(d, rounds * axes).nested())])
        set.update(bucket=f.get("bucket_size"), rounds=rounds, buckets=2 * axes, masks="kept", repeats="counted" if f.get("dup") else "once")
        if "input_mask" in s:  # of each head; the file leaves to masked queries their own values alone
            mask = s["input_mask"].data
            rows = lambda x: x.reshape(s[name].shape[0], 1, n, x.shape[-1])
            free = lambda x, y: rows(s[x]).each(lambda i, z: z if mask[i // s[x].shape[-1]] else y)
            do = free("go", 0.0)
            arrays |= {"q": rows(s[name]), "k": rows(s[name]), "v": rows(s["v"]), "key_mask": s["input_mask"], "do": do}
            want |= {"dq": rows(s["d_" + name]), "o": free("out", math.nan), "dv": rows(s["d_v"]).each(lambda i, x: x - s["go"].data[i] + do.data[i])}
    elif "planes" in s:
        if f.causal:
            return LEAKS
        if "key_lengths" in s and min(s["key_lengths"].data) < n:
            return "tokens beyond a length are sorted as zeros are, and average over each other"
        arrays["rotations"] = s["planes"]
        set.update(form="fast-transformers", bucket=f.get("chunk_size"), rounds=s["planes"].shape[0], buckets=2 * s["planes"].shape[1],
            scale=f.get("scale"), self="alone" if f.get("masked") else "seen")
    else:  # softmax over all keys of length 1: a chunk that holds all
        arrays["rotations"] = Array([0] * d, (1, d))
        set.update(bucket=n, rounds=1, buckets=2)
    f.add("reformer", set, want=want, arrays=arrays, width=d)


def scatterbrain(f):
    s = f.src
    set, arrays = {"scale": f.get("scale"), "features": s["W"].shape[0]}, {"projection": "W"}
    if "window" in s:
        set["window"] = f.get("window")
    else:
        rounds = len(s["alpha"].data) // (s["q"].shape[3] + 2)
        if rounds != 1:
            return f"sorted {rounds} times: one round is built here"
        set.update(support="lsh", cluster=f.get("cluster"))
        arrays["alpha"] = "alpha"
    f.add("scatterbrain", set, arrays=arrays, width=s["q"].shape[3])


def primal(f):
    """x, the source of projections, stands in the place of values. The loss is the square of J, a mean over rows and heads."""
    s, (b, h, n, d) = f.src, f.src["q"].shape
    set, arrays, want = {"rank": s["We"].shape[2], "eta": 1, "square": False, "loss": "code"}, {"v": Array([0] * (b * h * n * d), (b, h, n, d))}, {}
    if f.get("trace_no_x"):
        set["trace"] = "learned"
    if "x" in s:
        tokens = s["We"].shape[1]
        assert list(s["indices"].data) == [i * (n - 1) // (tokens - 1) for i in range(tokens)]
        set.update(data="dependent", tokens=tokens)
        arrays["v"], want["dv"] = s["x"].split(h), s["d_x"].split(h)
    if "mask" in s:  # of outputs
        keep = lambda i: s["mask"].data[i // (h * n * d) * n + i // d % n] != 0
        arrays["do"] = s["go"].each(lambda i, x: x if keep(i) else 0.0)
        want["o"] = s["out"].each(lambda i, x: x if keep(i) else math.nan)
    j = f.get("J")
    want["aux"] = Array([j * b * h], [1])
    f.add("primal", set, params={"We": "We", "Wr": "Wr", "Lambda": "Lambda", "Wc": "Wc_w", "Wc_bias": "Wc_b"}, want=want, arrays=arrays, heads=h, width=d,
        causal=f.get("causal_mean", 0) != 0, forms=["direct"], daux=f.get("go_ksvd_loss") * 2 * j / (b * h))


def stack(f):
    """A stack of blocks without embedding and head: tokens have the rows of x, and the head copies."""
    s, (b, n, width) = f.src, f.src["x"].shape
    ours = lambda x: re.sub(r"attention\.(\w+)_projection", lambda m: f"attn.{ {'query': 'q', 'key': 'k', 'value': 'v', 'out': 'o'}[m[1]]}_proj",
        x.replace("norm1", "attn_norm").replace("norm2", "mlp_norm").replace("linear1", "mlp.up_proj").replace("linear2", "mlp.down_proj"))
    head = Array([float(i % width == i // width) for i in range(b * n * width)], (b * n, width))
    want = {"o": "out", "dembed.weight": "d_x"}
    arrays = {"x": "x", "embed.weight": "x", "head.weight": head, "head.bias": Array([0] * (b * n), [b * n]), "key_lens": "lengths"}
    for x in s:
        if x.endswith((".weight", ".bias")) and not x.startswith("d_"):
            arrays[ours(x)], want["d" + ours(x)] = x, "d_" + x
    mechanism = "linear" if f.get("kind") else "softmax"
    config = dict(kind="decoder" if f.causal else "encoder", vocab=b * n, layers=f.get("layers"), heads=f.get("heads"), width=width, hidden=f.get("ff"), context=n,
        positions="none", activation="gelu" if f.get("gelu") else "relu", post_norm=True, bias=True, mechanism=mechanism)
    f.case(f.name, mechanism, want, arrays, model=config, forms=["direct", "step"] if f.causal else ["direct"], tolerance=f.tolerance)


GROUPS = dict(softmax=softmax, linear=linear, performer=performer, rfa=rfa, linformer=linformer, fourier=fourier, local=local, patterns=patterns, nystrom=nystrom,
    informer=informer, eva=eva, clustered=clustered, reformer=reformer, scatterbrain=scatterbrain, primal=primal, model=stack)
# Gradients of what lies within these modules follow from a formula: modules.py.
MODULES = re.compile(r"luna_.*|linformer_module|retnet_module_parallel")


def convert_zoo(name, src, entry):
    f = Zoo(name, src, entry)
    group = (retnet if "Wq" in src else retention) if entry["group"] == "retnet" else GROUPS[entry["group"]]
    reason = group(f)
    if reason:
        f.skip(name, f"group {entry['group']}: {reason}")
    return f


def main():
    fixtures, folder, names = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(fixtures, "zoo", "index.json")) as f:
        entries = {e["name"]: e for e in json.load(f)}
    for kind in "poly", "zoo":
        for file in sorted(os.listdir(os.path.join(fixtures, kind))):
            name, ext = os.path.splitext(file)
            if ext != ".npz" or names and name not in names or MODULES.fullmatch(name):
                continue
            src = load(os.path.join(fixtures, kind, file))
            f = convert_poly(name, src) if kind == "poly" else convert_zoo(name, src, entries[name])
            f.write(folder)


if __name__ == "__main__":
    main()
