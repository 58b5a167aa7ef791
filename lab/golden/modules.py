"""Converts fixtures of modules with projections to cases of the mechanisms within them.

    python3 modules.py FIXTURES FOLDER

The arrays within a module follow from its formula in float64, which must give the module's outputs
and gradients as the fixture has them. Their gradients are those of PyTorch, which it needs.
"""

import json
import os
import sys

import torch
from torch.nn.functional import elu, silu, softmax

sys.dont_write_bytecode = True
from convert import Array, Zoo, load, retnet


class Module(Zoo):
    """A fixture as tensors, which have gradients where the fixture has some. What its cases share is do of layers."""

    def __init__(self, name, src, entry):
        super().__init__(name, src, entry)
        self.out = {x: a for x, a in self.out.items() if "Wg" in src}
        self.t = {x: torch.tensor(list(a.data), dtype=torch.int64 if a.kind == "<i8" else torch.float64).reshape(a.shape) for x, a in src.items()}
        for x in src:
            if "d_" + x in src:
                self.t[x].requires_grad_()

    def affine(self, name, x):
        return x @ self.t[name + "_w"].T + self.t[name + "_b"]

    def within(self, x):
        """Returns a result of the module's arrays as an input of a mechanism, which keeps its gradient."""
        x.retain_grad()
        return x

    def check(self, **outputs):
        """Compares outputs and all gradients with the fixture."""
        sum((y * self.t["go" if x == "out" else "go_" + x]).sum() for x, y in outputs.items()).backward()
        pairs = [(y, self.t[x]) for x, y in outputs.items()] + [(self.t[x].grad, self.t["d_" + x]) for x in self.src if "d_" + x in self.src]
        for got, want in pairs:
            assert (got - want).abs().max() < 1e-11 * (1 + want.abs().max()), self.name


def numbers(x):
    """Returns a tensor as an Array."""
    return Array(x.detach().flatten().tolist(), x.shape)


def heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(-2, -3)


def attend(f, name, mechanism, inputs, o, params=(), lens=None, **fields):
    """Adds a case for each batch row, if arrays are parameters, else one."""
    for b in range(len(o)) if params else [slice(None)]:
        at = lambda x: numbers(x[b : b + 1] if params else x)
        arrays = {x: at(y) for x, y in inputs.items()} | {"do": at(o.grad)}
        want = {"o": at(o)} | {"d" + x: at(y.grad) for x, y in inputs.items()}
        if lens is not None:
            arrays["key_lens"] = Array(lens[b : b + 1].tolist() if params else lens.tolist(), [1 if params else len(lens)], "<i8")
        f.case(f"{name}{b}" if params else name, mechanism, want, arrays, tolerance=f.tolerance, **fields)


def linformer(f):
    t, h = f.t, f.get("heads")
    q, k, v = (f.within(heads(t["x"] @ t[w].T, h)) for w in ("Wq", "Wk", "Wv"))
    E, F = f.within(t["E"] * 1), f.within(t["F"] * 1)
    o = f.within(softmax(q @ (E.T @ k).transpose(-1, -2) / q.shape[-1] ** 0.5, -1) @ (F.T @ v))
    f.check(out=o.transpose(1, 2).flatten(2) @ t["Wo"].T + t["bo"])
    attend(f, f.name, "linformer", dict(q=q, k=k, v=v, E=E, F=F), o, length=q.shape[2], forms=["direct"], set={"rank": E.shape[1], "columns": "all"})


def luna(f):
    """Keys have two parts side by side, for queries and for packed queries; the other part of these is zeros."""
    t, x, h, causal = f.t, f.t["x"], f.get("heads"), "omega" in f.src
    has = lambda name: name + "_w" in f.src
    n, d, length, pack = x.shape[1], x.shape[2] // h, t["p"].shape[1], h if causal else f.get("pheads")
    pc = ["pc_proj"] * 2 if has("pc_proj") else ["pk_proj", "pv_proj"]
    c = ["c_proj"] * 2 if has("c_proj") else ["k_proj", "v_proj"]
    q, pq, pk = f.affine("q_proj", x), f.affine("pq_proj", t["p"]), f.affine(pc[0], x)
    source = x if causal else f.affine(pc[1], x)
    k, v = f.affine(c[0], source), f.affine(c[1], source)
    side = x.shape[2] // pack  # the width of packed heads
    zeros = lambda x, width: x.new_zeros(*x.shape[:-1], width)
    lens = t.get("lengths")
    hidden = torch.arange(n) >= (lens if lens is not None else torch.tensor([n]))[:, None, None, None]
    over = lambda scores: softmax(scores.masked_fill(hidden, -torch.inf), -1)  # keys
    if not causal and pack > 1:  # packed heads are mixed before they are read: two calls of softmax
        Q, K, V = (f.within(heads(y, pack)) for y in (pq, pk, source))
        packed = f.within(over(Q @ K.transpose(-1, -2) / side**0.5) @ V)
        y = packed.transpose(1, 2).flatten(2)
        q2, k2, v2 = (f.within(heads(z, h)) for z in (q, f.affine(c[0], y), f.affine(c[1], y)))
        o = f.within(softmax(q2 @ k2.transpose(-1, -2) / d**0.5, -1) @ v2)
        f.check(out=f.affine("out_proj", o.transpose(1, 2).flatten(2)), pcontext=y)
        attend(f, "pack", "softmax", dict(q=Q, k=K, v=V), packed, lens=lens, forms=["direct"])
        return attend(f, "unpack", "softmax", dict(q=q2, k=k2, v=v2), o, forms=["direct"])
    many = lambda y: heads(y, h) if causal else y[:, None].expand(-1, h, -1, -1)
    Q = f.within(torch.cat([heads(q, h) / d**0.5, zeros(heads(q, h), side)], -1))
    K = f.within(torch.cat([heads(k, h), many(pk)], -1))
    P = f.within(torch.cat([zeros(many(pq), d), many(pq) / side**0.5], -1))
    V = f.within(heads(v, h))
    s = K @ P.transpose(-1, -2)
    if causal:
        omega = [lambda y: torch.log2(1 + 2**y), lambda y: elu(y) + 1, elu][f.get("omega")]
        w, mean = omega(s), torch.tril(torch.ones(n, n, dtype=x.dtype)) / torch.arange(1, n + 1)[:, None]
        a = softmax(((Q @ K.transpose(-1, -2)) * mean) @ w, -1)
        o = f.within(((a @ w.transpose(-1, -2)) * mean) @ V)
        set = {"form": "causal", "omega": ["softplus", "elu+1", "elu"][f.get("omega")]}
        f.check(out=f.affine("out_proj", o.transpose(1, 2).flatten(2)))
    else:
        w = over(s.transpose(-1, -2))
        o = f.within(softmax(Q @ (w @ K).transpose(-1, -2), -1) @ (w @ V))
        set = {"form": "encoder"}
        Q1, K1, V1 = (f.within(y[:, None] * 1) for y in (pq, pk, source))
        packed = f.within(over(Q1 @ K1.transpose(-1, -2) / side**0.5) @ V1)
        f.check(out=f.affine("out_proj", o.transpose(1, 2).flatten(2)), pcontext=packed[:, 0])
        attend(f, "pack", "softmax", dict(q=Q1, k=K1, v=V1), packed, lens=lens, forms=["direct"])
    attend(f, "row", "luna", dict(q=Q, k=K, v=V, p=P), o, params=["p"], lens=lens, heads=h, width=d + side, causal=causal,
        forms=["direct", "step"] if causal else ["direct"], set={"length": length, "scale": 1, **set})


def retention(f):
    """The fixture divides each row of scores before the norm of heads, which cancels but for epsilon. The case has the
    outputs and gradients of the same formula without that division."""
    x = f.t["x"]

    def out(divide):
        t, h, n = f.t, f.get("heads"), x.shape[1]
        d = x.shape[2] // h
        angle = torch.arange(n, dtype=x.dtype)[:, None] * 10000 ** -(torch.arange(d // 2, dtype=x.dtype) / (d // 2 - 1))
        turn = torch.polar(torch.ones_like(angle), angle)
        rotated = lambda y: torch.view_as_real(torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous()) * turn).flatten(-2)
        q, k = (rotated(heads(x @ t[w].T, h)) for w in ("Wq", "Wk"))
        v = heads(x @ t["Wv"].T, h)
        ages = (torch.arange(n)[:, None] - torch.arange(n)).to(x.dtype)
        gamma = 1 - 2.0 ** (-5 - torch.arange(h, dtype=x.dtype))[:, None, None]
        decay = torch.where(ages >= 0, gamma ** ages.clamp(min=0), 0.0)
        a = q @ k.transpose(-1, -2) * d**-0.5 * decay
        if divide:
            a = a / decay.sum(-1, keepdim=True).sqrt()
            a = a / a.detach().abs().sum(-1, keepdim=True).clamp(1, 5e4)
        y = a @ v
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + f.get("ln_eps"))
        return (silu(x @ t["Wg"].T) * y.transpose(1, 2).flatten(2)) @ t["Wo"].T

    f.check(out=out(True))
    for y in f.t.values():
        y.grad = None
    y = out(False)
    (y * f.t["go"]).sum().backward()
    f.src = {**f.src, "out": numbers(y), **{"d_" + w: numbers(f.t[w].grad) for w in f.src if "d_" + w in f.src}}
    retnet(f)


def main():
    fixtures, folder = sys.argv[1:]
    with open(os.path.join(fixtures, "zoo", "index.json")) as file:
        entries = {e["name"]: e for e in json.load(file)}
    for name, entry in entries.items():
        convert = {"luna": luna, "linformer_module": linformer, "retnet_module_parallel": retention}.get(name if "module" in name else entry["group"])
        if convert:
            f = Module(name, load(os.path.join(fixtures, "zoo", name + ".npz")), entry)
            convert(f)
            f.write(folder)


if __name__ == "__main__":
    main()
