"""Writes what transformers makes of each field of config.json, family by family.

    python3 transformers_fields.py FOLDERS >internal/published/testdata/fields.json

Each folder NAME below FOLDERS has a tiny model and input.json, as FARFIELD_FIELDS=FOLDERS go test
./internal/published -run Fields writes them. For each field of the family's configuration class, with
another value than the folder's, a line has NAME, field, value, and the outcome: same, changed with
some outputs, or refused. The test of that name holds the folders opened here to it.
"""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import warnings

import torch
import transformers

warnings.filterwarnings("ignore")
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

# Values of fields that need a certain one, of older files' fields among them.
OLDER = {
    "rope_theta": 7000.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}, "position_embedding_type": "relative_key",
    "attention_bias": True, "mlp_bias": True, "qk_layernorm": True, "scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False,
    "sliding_window": 2, "use_sliding_window": True, "max_window_layers": 0, "layer_types": None, "partial_rotary_factor": 0.25,
    "rotary_pct": 0.5, "rotary_emb_base": 500, "head_dim": 2, "normalize_before": True, "pruned_heads": {"0": [0]},
    "global_rope_theta": 500.0, "local_rope_theta": 500.0, "global_attn_every_n_layers": 1, "use_bidirectional_attention": True,
    "pooler_act": "relu", "hidden_act": "relu", "activation": "relu", "activation_function": "relu", "hidden_activation": "relu",
    "classifier_activation": "relu", "classifier_pooling": "mean", "problem_type": "multi_label_classification", "dtype": "float32",
    "layer_norm_eps": 0.25, "rms_norm_eps": 0.25, "layer_norm_epsilon": 0.25, "norm_eps": 0.25, "is_decoder": True, "is_encoder_decoder": True,
    "rope_parameters": {"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 0.5}, "pad_token_id": 5,
    "tie_word_embeddings": None, "attn_logit_softcapping": 1.0, "final_logit_softcapping": 1.5, "query_pre_attn_scalar": 3, "add_cross_attention": True, "n_inner": 20,
}

# Fields that describe a folder, of bert and llama.
MARKS = {
    "auto_map": {"AutoModel": "modeling.Mine"}, "base_model": "a/b", "license": "mit", "license_link": "LICENSE", "language_code": "en", "tags": ["a"],
    "datasets": ["a"], "version": 2, "cache_implementation": "hybrid", "use_cache_quantization": True, "ignore_index": -1,
} | {
    name: "x" for name in """name license_name model_name author authors description base_model_name_or_path library_name pipeline_tag model_version
    revision created_by bos_token eos_token pad_token unk_token tokenizer_file vocab_file trl_version peft_version custom_pipelines""".split()
}


def load(folder):
    config = json.loads((folder / "config.json").read_text())
    model = getattr(transformers, config["architectures"][0]).from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    return model.eval()


def outputs(model, given):
    with torch.no_grad():
        result = model(**given)
    x = result.logits if "logits" in result else result.last_hidden_state
    return x.double().flatten()


def mutated(name, old):
    if name in MARKS:
        return MARKS[name]
    if OLDER.get(name) is not None and OLDER[name] != old:
        return OLDER[name]
    if name == "layer_types" or name == "tie_word_embeddings" and old is None:
        return None
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return old + 1
    if isinstance(old, float):
        return 2 * old + 0.125
    if isinstance(old, str):
        return old + "x"
    return 1 if old is None else None


def main():
    root = pathlib.Path(sys.argv[1])
    skip = {"model_type", "architectures", "transformers_version", "id2label", "label2id", "_name_or_path", "vocab_size"}
    lines = []
    for folder in sorted(x for x in root.iterdir() if x.is_dir()):
        text = json.loads((folder / "config.json").read_text())
        if text["model_type"] == "modernbert":  # the default is beyond a small vocabulary
            text["pad_token_id"] = 0
            (folder / "config.json").write_text(json.dumps(text))
        given = {k: torch.tensor(v) for k, v in json.loads((folder / "input.json").read_text()).items()}
        model = load(folder)
        base = outputs(model, given)
        own = model.config.to_dict()
        marks = MARKS if folder.name in ("bert", "llama") else {}
        for name in sorted((set(own) | set(OLDER) | set(marks) | set(type(model.config).attribute_map)) - skip):
            value = mutated(name, text.get(name, own.get(name)))
            if value is None:
                continue
            with tempfile.TemporaryDirectory() as temp, contextlib.redirect_stderr(io.StringIO()):
                to = pathlib.Path(temp) / "m"
                shutil.copytree(folder, to)
                (to / "config.json").write_text(json.dumps(text | {name: value}))
                line = {"model": folder.name, "field": name, "value": value}
                try:
                    other = load(to)
                    fresh = [k for k, p in other.named_parameters() if k in dict(model.named_parameters()) and p.shape != dict(model.named_parameters())[k].shape]
                    extra = set(dict(other.named_parameters())) - set(dict(model.named_parameters()))
                    x = outputs(other, given)
                    if fresh or extra or x.shape != base.shape:
                        line["outcome"] = "refused"  # weights are drawn, or have another shape
                    elif torch.allclose(x, base, rtol=0, atol=1e-6 * float(base.abs().max())):
                        line["outcome"] = "same"
                    else:
                        line["outcome"], line["outputs"] = "changed", [float("%.6g" % v) for v in x[:: max(1, len(x) // 8)]]
                except Exception:  # of any kind: the family refuses the value
                    line["outcome"] = "refused"
            lines.append(json.dumps(line))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
