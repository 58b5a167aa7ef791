"""Writes what transformers gives for small folders, for the tests of package published.

    python3 transformers_references.py FOLDERS OUT

Each folder NAME below FOLDERS has config.json, model.safetensors and in.npz, as
FARFIELD_REFERENCES=FOLDERS go test ./internal/published -run WriteReferenceFolders writes them.
OUT/NAME.npz gets the arrays of in.npz, the outputs by the names of transformers, do, and
the gradients of sum(out·do) as d_NAME. With prompt [1,n] it also gets greedy [1,24], the arg-max
continuation. Models run in float64, each row alone and
without its padding; rows of masked tokens are 0.
"""

import json
import pathlib
import sys
import tempfile

import numpy
import safetensors.numpy
import torch
import transformers


def load(folder):
    """Returns the model of a folder, all of whose weights are in its file."""
    config = json.loads((folder / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    model, info = kind.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not info[what], (folder.name, what, info[what])
    for name, x in model.named_buffers():
        x.requires_grad_(name == "final_logits_bias")  # of BART, a weight of the file
    return model.eval()


def run(model, given, row):
    """Returns the outputs for one row of the arrays of in.npz."""
    args = {}
    for name, x in given.items():
        if name == "prompt":
            continue
        x = torch.tensor(x[row : row + 1])
        if name == "input_ids":
            x = x[:, : int(given["attention_mask"][row].sum())]
        args[name] = x.double() if name == "pixel_values" else x.long()
    args.pop("attention_mask", None)
    result = model(**args, output_hidden_states=True)
    out = {}
    if "logits" in result:
        out["logits"] = result.logits[0]
    else:
        out["last_hidden_state"] = result.last_hidden_state[0]
    if result.get("pooler_output") is not None:
        out["pooler_output"] = result.pooler_output[0]
    if "decoder_input_ids" in given:
        out["encoder_last_hidden_state"] = result.encoder_last_hidden_state[0]
        out["decoder_hidden"] = torch.stack(result.decoder_hidden_states)[:, 0]
    else:
        out["hidden"] = torch.stack(result.hidden_states)[:, 0]
    return out


def padded(rows, axis, count):
    """Stacks the rows, each filled with zeros to count along an axis."""
    out = []
    for x in rows:
        pad = [(0, 0)] * x.ndim
        pad[axis] = (0, count - x.shape[axis])
        out.append(numpy.pad(x, pad))
    return numpy.stack(out, axis)


def gradients(model):
    """Returns the gradients of the weights by the names of model.safetensors. The weights are lost."""
    with torch.no_grad():
        for x in [*model.parameters(), *model.buffers()]:
            if x.requires_grad:
                x.copy_(torch.zeros_like(x) if x.grad is None else x.grad)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return safetensors.numpy.load_file(folder + "/model.safetensors")


def reference(folder):
    """Returns the arrays of the reference of a folder."""
    model, given = load(folder), dict(numpy.load(folder / "in.npz"))
    rows = [run(model, given, i) for i in range(len(next(iter(given.values()))))]
    arrays = dict(given)
    if "prompt" in given:
        prompt = torch.tensor(given["prompt"]).long()
        more = model.generate(prompt, max_new_tokens=24, do_sample=False, eos_token_id=None, pad_token_id=0)
        arrays["greedy"] = more[:, prompt.shape[1] :].numpy()
    for name in rows[0]:
        x = [r[name].detach().numpy() for r in rows]
        axis = 1 if "hidden" in name and x[0].ndim == 3 else 0
        if x[0].ndim > 1:
            arrays[name] = padded(x, axis, max(y.shape[axis] for y in x))
        else:
            arrays[name] = numpy.stack(x)
    name = "logits" if "logits" in rows[0] else "last_hidden_state"
    arrays["do"] = numpy.random.default_rng(1).standard_normal(arrays[name].shape).astype(numpy.float32)
    total = 0
    for do, row in zip(arrays["do"], rows):
        do[len(row[name]) :] = 0
        total += (row[name] * torch.tensor(do[: len(row[name])]).double()).sum()
    total.backward()
    arrays.update({"d_" + weight: x for weight, x in gradients(model).items()})
    return {k: v.astype(numpy.float32) if v.dtype == numpy.float64 else v for k, v in arrays.items()}


def main():
    transformers.logging.set_verbosity_error()
    torch.cuda.is_current_stream_capturing = lambda: False
    transformers.utils.import_utils.is_cuda_stream_capturing = lambda: False
    to = pathlib.Path(sys.argv[2])
    to.mkdir(exist_ok=True)
    for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
        numpy.savez_compressed(to / f"{folder.name}.npz", **reference(folder))
        print(folder.name)


if __name__ == "__main__":
    main()
