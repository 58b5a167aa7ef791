"""Tells what outlying columns and the table of embeddings cost in 8 bits.

	int8_columns.py FOLDER TEXTS [COUNT]

FOLDER is a BERT that embeds sentences by their mean, TEXTS a file of STS-B, of which the first
COUNT texts are read. Needs torch and transformers. Weights and inputs are rounded as farfield
rounds them, outliers of rows included. Prints 1 - cosine to float32, in millionths: the mean, and the most.
Columns are chosen by the largest input on the same texts, which is the best case, or by the
largest weight.
"""
import sys

import torch
from transformers import AutoModel, AutoTokenizer


def round_rows(x):
    scale = x.abs().amax(-1, keepdim=True) / 127
    return torch.round(x / scale.clamp_min(1e-30)) * scale


def round_inputs(x):
    """Numbers of a row that reach an eighth of the largest stay, if they are few."""
    level = torch.round(x.abs() * 127 / x.abs().amax(-1, keepdim=True).clamp_min(1e-30))
    out = level >= 16
    out &= out.sum(-1, keepdim=True) <= min(8, x.shape[-1] // 32)
    return torch.where(out, x, round_rows(x.masked_fill(out, 0)))


class Column:
    """Rounds the weights and inputs of a layer, but for columns."""

    def __init__(self, layer):
        self.layer, self.weight = layer, layer.weight.data.clone()
        self.largest = torch.zeros(layer.in_features)
        self.keep, self.active = [], False
        layer.register_forward_pre_hook(self)

    def __call__(self, _, inputs):
        x = inputs[0]
        if not self.active:
            self.largest = torch.maximum(self.largest, x.abs().flatten(0, -2).amax(0))
            return None
        y = x.clone()
        y[..., self.keep] = 0
        y = round_inputs(y)
        y[..., self.keep] = x[..., self.keep]
        return (y,)

    def hold(self, keep, active=True):
        self.keep, self.active = keep, active
        w = self.weight.clone()
        if active:
            w[:, keep] = 0
            w = round_rows(w)
            w[:, keep] = self.weight[:, keep]
        self.layer.weight.data = w


@torch.no_grad()
def main(folder, path, count=320):
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    with open(path, encoding="utf-8") as f:
        texts = [text for line in f if len(c := line.rstrip("\n").split("\t")) > 6 for text in c[5:7]][: int(count)]
    texts.sort(key=len)
    batches = [tokenizer(texts[i : i + 32], padding=True, truncation=True, max_length=256, return_tensors="pt") for i in range(0, len(texts), 32)]
    layers = [Column(m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and "pooler" not in n]
    table = model.embeddings.word_embeddings.weight
    words = table.data.clone()

    def embed():
        list = []
        for b in batches:
            mask = b["attention_mask"][..., None].float()
            list.append(torch.nn.functional.normalize((model(**b).last_hidden_state * mask).sum(1) / mask.sum(1), dim=1))
        return torch.cat(list).double()

    exact = embed()

    def show(name):
        lost = 1 - (embed() * exact).sum(1)
        print(f"{name:40s} {1e6 * lost.mean():8.1f} {1e6 * lost.max():8.1f}", flush=True)

    table.data = round_rows(words)
    show("embeddings")
    for layer in layers:
        layer.hold([])
    show("embeddings and layers")
    for n in (2, 8, 32):
        for by, key in (("input", lambda l: l.largest), ("weight", lambda l: l.weight.abs().amax(0))):
            for layer in layers:
                layer.hold(key(layer).topk(n).indices)
            show(f"{n} columns by {by} stay")


main(*sys.argv[1:])
