"""Times PyTorch: a case on each line of standard input, a line with figures for each.

A case is the JSON object that `farfield bench --json` prints, without figures:
mechanism, causal, direction, n, d, heads and threads say what to run, and
"budget" for how many milliseconds (one call at least). The answer is the same
object with form, ms, spread and gflops filled in, or with "error". The first
line of the output tells the version and the settings.

With the argument check, it compares the forms with their definitions instead.
"""

import json
import math
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F


def normalise(x):
    """Gives rows mean 0 and deviation 1, as Fastmax does."""
    x = x - x.mean(-1, keepdim=True)
    return x / x.std(-1, unbiased=False, keepdim=True)


def fastmax(q, k, v):
    """Fastmax, p = 2, by its factors: what einsum makes of the paper's equations."""
    q, k = normalise(q), normalise(k)
    n = k.shape[-2]
    kk = torch.einsum("bhni,bhnj->bhnij", k, k).flatten(-2)
    f2, g2 = torch.einsum("bhnf,bhnv->bhfv", kk, v), kk.sum(-2)
    del kk
    f1, g1 = torch.einsum("bhni,bhnv->bhiv", k, v), k.sum(-2)
    qq = torch.einsum("bhni,bhnj->bhnij", q, q).flatten(-2)
    f = v.sum(-2, keepdim=True) + torch.einsum("bhni,bhiv->bhnv", q, f1) + 0.5 * torch.einsum("bhnf,bhfv->bhnv", qq, f2)
    g = n + torch.einsum("bhni,bhi->bhn", q, g1) + 0.5 * torch.einsum("bhnf,bhf->bhn", qq, g2)
    return f / g.unsqueeze(-1)


def taylorshift(q, k, v):
    """TaylorShift's efficient form (its algorithm 1): the denominator is a column beside v."""
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    v = torch.cat((torch.ones_like(v[..., :1]), v), dim=-1)

    def box(x):
        return (x.unsqueeze(-1) * x.unsqueeze(-2)).flatten(-2)

    y = 0.5 * (box(q) @ (box(k).transpose(-1, -2) @ v)) + q @ (k.transpose(-1, -2) @ v) + v.sum(-2, keepdim=True)
    return y[..., 1:] / y[..., :1]


def linear(q, k, v):
    """Linear attention, φ = elu + 1, over all keys."""
    q, k = F.elu(q) + 1, F.elu(k) + 1
    s = torch.einsum("bhnd,bhnv->bhdv", k, v)
    z = torch.einsum("bhnd,bhd->bhn", q, k.sum(-2))
    return torch.einsum("bhnd,bhdv->bhnv", q, s) / (z + 1e-6).unsqueeze(-1)


def linear_causal(q, k, v, chunk):
    """Linear attention, φ = elu + 1, causal: sums before each chunk, and pairs within it."""
    b, h, n, d = q.shape
    q, k = F.elu(q) + 1, F.elu(k) + 1
    q, k, v = (x.unflatten(2, (n // chunk, chunk)) for x in (q, k, v))
    s = torch.einsum("bhcnd,bhcnv->bhcdv", k, v)
    s = s.cumsum(2) - s
    z = k.sum(-2)
    z = z.cumsum(2) - z
    pairs = torch.einsum("bhcnd,bhcmd->bhcnm", q, k).tril()
    f = torch.einsum("bhcnm,bhcmv->bhcnv", pairs, v) + torch.einsum("bhcnd,bhcdv->bhcnv", q, s)
    g = pairs.sum(-1) + torch.einsum("bhcnd,bhcd->bhcn", q, z)
    return (f / (g + 1e-6).unsqueeze(-1)).reshape(b, h, n, -1)


class Block(torch.nn.Module):
    """A pre-norm block as nanoGPT's, without biases and dropout."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, bias=False) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width, bias=False)
        self.out = torch.nn.Linear(width, width, bias=False)
        self.up = torch.nn.Linear(width, 4 * width, bias=False)
        self.down = torch.nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Model(torch.nn.Module):
    """A decoder of bytes with learned positions and a tied head."""

    def __init__(self, layers, width, heads, context):
        super().__init__()
        self.tokens = torch.nn.Embedding(256, width)
        self.positions = torch.nn.Embedding(context, width)
        self.blocks = torch.nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


LAYERS, BATCH = 6, 8


def training(n, d, heads):
    """An update: forward, backward, clipping to norm 1, AdamW."""
    model = Model(LAYERS, heads * d, heads, n)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.99), weight_decay=0, fused=True)
    tokens, targets = (torch.randint(256, (BATCH, n)) for _ in range(2))

    def update():
        optimizer.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimizer.step()

    return update


def quiet(f):
    """f without what gradients need."""

    def call():
        with torch.inference_mode():
            return f()

    return call


def prepare(case):
    """Returns the form, what to call, and the useful operations of a call (farfield bench's count)."""
    n, d, heads, causal = case["n"], case["d"], case["heads"], case["causal"]
    direct = 4 * n * n * d * heads / (2 if causal else 1)
    if case["direction"] == "update":
        width = heads * d
        products = 6 * BATCH * n * (12 * LAYERS * width * width + 256 * width)
        return "sdpa", training(n, d, heads), 3.5 * LAYERS * BATCH * direct + products
    q, k, v = (torch.rand(1, heads, n, d) * 2 - 1 for _ in range(3))
    name = case["mechanism"]
    if name == "softmax":
        if case["direction"] == "forward":
            return "sdpa", quiet(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal)), direct
        for x in (q, k, v):
            x.requires_grad_()
        out = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        g = torch.rand_like(out) * 2 - 1
        return "sdpa", lambda: torch.autograd.grad(out, (q, k, v), g, retain_graph=True), 2.5 * direct
    if case["direction"] == "forward":
        features = (d + 1) * (d + 2) // 2
        if name == "fastmax" and not causal:
            return "einsum", quiet(lambda: fastmax(q, k, v)), 4 * n * features * (d + 1) * heads
        if name == "taylorshift" and not causal:
            return "efficient", quiet(lambda: taylorshift(q, k, v)), 4 * n * features * (d + 1) * heads
        if name == "linear" and not causal:
            return "einsum", quiet(lambda: linear(q, k, v)), 4 * n * d * (d + 1) * heads
        if name == "linear":
            calls = [quiet(lambda c=c: linear_causal(q, k, v, c)) for c in (32, 64, 128, 256) if n % c == 0]
            return "chunks", min(calls, key=quickest), 4 * n * d * (d + 1) * heads
    raise ValueError(f"no such case here: {case}")


def quickest(call):
    """The least time of a few calls."""
    return min(seconds(call, 1) for _ in range(3))


def seconds(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


ROUND = 1e-3  # seconds of calls that are timed together, at least


class Prepared:
    """A case with its data in place and its first calls made."""

    def __init__(self, case):
        self.form, self.call, self.flops = prepare(case)
        t = seconds(self.call, 1)
        if t < 20 * ROUND:  # the first call fetches memory
            t = seconds(self.call, 1)
        self.repeats = max(1, math.ceil(ROUND / max(t, 1e-6)))

    def measure(self, case):
        times, start = [], time.perf_counter()
        while not times or time.perf_counter() - start < case.get("budget", 500) / 1e3:
            times.append(seconds(self.call, self.repeats))
        t = statistics.median(times)
        low, _, high = statistics.quantiles(times, n=4) if len(times) > 1 else (t, t, t)
        answer = dict(case, impl="torch", m=case["n"], dv=case["d"], isa=torch.backends.cpu.get_cpu_capability().lower())
        answer.update(form=self.form, ms=1e3 * t, spread=(high - low) / t, gflops=self.flops / t / 1e9)
        answer.update(best_ms=1e3 * min(times), rounds=len(times), peak_gflops=None, share=None, extra_bytes=None)
        return answer


DEFAULTS = {"mechanism": "softmax", "order": 0, "causal": False, "direction": "forward", "heads": 1, "threads": 1}
KEEP = 4  # prepared cases


def serve():
    names = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "GLIBC_TUNABLES")
    settings = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    print(json.dumps({"impl": f"torch {torch.__version__}", "settings": " ".join(settings)}), flush=True)
    prepared = {}
    for line in sys.stdin:
        case = DEFAULTS | json.loads(line)
        try:
            torch.set_num_threads(case["threads"])
            key = json.dumps([case[x] for x in ("mechanism", "causal", "direction", "n", "d", "heads", "threads")])
            if key not in prepared:
                while len(prepared) >= KEEP:
                    del prepared[next(iter(prepared))]
                prepared[key] = Prepared(case)
            answer = prepared[key].measure(case)
        except Exception as e:  # a case that fails is an answer, too
            answer = dict(case, impl="torch", error=f"{type(e).__name__}: {e}")
        print(json.dumps(answer), flush=True)


def check():
    """Holds each form against its definition, weights of all pairs in float64."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 3, 64, 8, dtype=torch.float64) for _ in range(3))

    def taylor(x, y):
        s = x @ y.transpose(-1, -2)
        return 1 + s + s * s / 2

    def attend(weights):
        return weights @ v / weights.sum(-1, keepdim=True)

    positive = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    forms = {
        "fastmax": (fastmax(q, k, v), attend(taylor(normalise(q), normalise(k)))),
        "taylorshift": (taylorshift(q, k, v), attend(taylor(F.normalize(q, dim=-1), F.normalize(k, dim=-1)))),
        "linear": (linear(q, k, v), attend(positive)),
        "linear, causal": (linear_causal(q, k, v, 16), attend(positive.tril())),
    }
    worst = 0.0
    for name, (got, want) in forms.items():
        error = (got - want).abs().max().item()
        worst = max(worst, error)
        print(f"{name}: {error:.1e}")
    sys.exit(worst > 1e-6)


if __name__ == "__main__":
    torch.set_flush_denormal(True)
    check() if sys.argv[1:] == ["check"] else serve()
