"""Serves a Llama of the Hugging Face layout with llama.cpp's server.

	llamacpp_server.py FOLDER THREADS SLOTS [embeddings]
	llamacpp_server.py --shape FOLDER TOKENIZER

needs numpy, gguf and xllamacpp, which has llama.cpp's server. The first line
is "listening on ADDRESS"; the server ends with standard input. The weights are
those of the folder in float32, in a GGUF file beside them. --shape writes a
folder of SmolLM-135M's shape with random weights.
"""
import json
import os
import shutil
import sys

import gguf
import numpy as np


def read_safetensors(path):
    data = np.memmap(path, np.uint8, "r")
    size = int(data[:8].view("<u8")[0])
    head = json.loads(bytes(data[8 : 8 + size]))
    head.pop("__metadata__", None)
    for name, entry in head.items():
        if entry["dtype"] != "F32":
            raise ValueError(f"{name}: dtype is {entry['dtype']}, needs F32")
        begin, end = entry["data_offsets"]
        yield name, data[8 + size + begin : 8 + size + end].view("<f4").reshape(entry["shape"])


def write_shape(folder, tokenizer):
    """Writes SmolLM-135M's shape with random weights."""
    width, hidden, layers, heads, keys, vocab = 576, 1536, 30, 9, 3, 49152
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_size=width, intermediate_size=hidden,
                       num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=keys, vocab_size=vocab,
                       max_position_embeddings=2048, rms_norm_eps=1e-5, rope_theta=10000.0, hidden_act="silu",
                       tie_word_embeddings=True, bos_token_id=1, eos_token_id=2, torch_dtype="float32"), f)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(os.path.join(tokenizer, name), os.path.join(folder, name))
    rows = heads * 64, keys * 64
    shapes = {"model.embed_tokens.weight": (vocab, width), "model.norm.weight": (width,)}
    for i in range(layers):
        for name, shape in (("input_layernorm", (width,)), ("post_attention_layernorm", (width,)), ("self_attn.q_proj", (rows[0], width)),
                            ("self_attn.k_proj", (rows[1], width)), ("self_attn.v_proj", (rows[1], width)), ("self_attn.o_proj", (width, rows[0])),
                            ("mlp.gate_proj", (hidden, width)), ("mlp.up_proj", (hidden, width)), ("mlp.down_proj", (width, hidden))):
            shapes[f"model.layers.{i}.{name}.weight"] = shape
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape))
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    random = np.random.default_rng(1)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(np.array(len(text), "<u8").tobytes() + text)
        for shape in shapes.values():
            x = random.standard_normal(shape, dtype=np.float32) * np.float32(0.04)
            f.write((x if len(shape) > 1 else 1 + x).tobytes())


NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def interleave(weight, heads):
    """Rows of rotary halves as llama.cpp's pairs."""
    n, width = weight.shape
    return weight.reshape(heads, 2, n // heads // 2, width).swapaxes(1, 2).reshape(n, width)


def convert(folder, path):
    """Writes the GGUF file of a folder."""
    with open(os.path.join(folder, "config.json")) as f:
        c = json.load(f)
    with open(os.path.join(folder, "tokenizer.json")) as f:
        words = json.load(f)["model"]["vocab"]
    w = gguf.GGUFWriter(path, "llama")
    heads, keys = c["num_attention_heads"], c["num_key_value_heads"]
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_head_count(heads)
    w.add_head_count_kv(keys)
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_rope_freq_base(c["rope_theta"])
    w.add_rope_dimension_count(c["hidden_size"] // heads)
    w.add_vocab_size(c["vocab_size"])
    tokens = [f"<unused{i}>" for i in range(c["vocab_size"])]
    for text, i in words.items():
        tokens[i] = text
    kinds = [gguf.TokenType.UNKNOWN if i == 0 else gguf.TokenType.CONTROL if i < 3 else
             gguf.TokenType.BYTE if i < 259 else gguf.TokenType.NORMAL if i < len(words) else gguf.TokenType.UNUSED for i in range(len(tokens))]
    w.add_tokenizer_model("llama")
    w.add_token_list(tokens)
    w.add_token_scores([-float(i) for i in range(len(tokens))])
    w.add_token_types(kinds)
    w.add_bos_token_id(c["bos_token_id"])
    w.add_eos_token_id(c["eos_token_id"])
    for name, x in read_safetensors(os.path.join(folder, "model.safetensors")):
        name = name.removesuffix(".weight")
        block = ""
        if name.startswith("model.layers."):
            number, name = name.removeprefix("model.layers.").split(".", 1)
            block = f"blk.{number}."
        if name.endswith("q_proj"):
            x = interleave(x, heads)
        if name.endswith("k_proj"):
            x = interleave(x, keys)
        w.add_tensor(block + NAMES[name] + ".weight", np.ascontiguousarray(x))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def serve(folder, threads, slots, embeds):
    import xllamacpp

    path = os.path.join(folder, "f32.gguf")
    if not os.path.exists(path):
        convert(folder, path + ".new")
        os.rename(path + ".new", path)
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_parallel, p.n_ctx = slots, 2048 * slots
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
    p.port, p.verbosity = 0, 0
    p.fit_params = False
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    if embeds:
        p.embedding, p.pooling_type = True, xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
    server = xllamacpp.Server(p)
    print("listening on", server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)


if sys.argv[1] == "--shape":
    write_shape(*sys.argv[2:])
else:
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), len(sys.argv) > 4)
