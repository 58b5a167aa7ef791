"""Decodes with a Llama of SmolLM-135M's shape in llama.cpp, whose weights are random and of its type Q8_0.

needs numpy, gguf and xllamacpp, which has llama.cpp's server. A line of input is
{"prompt": TOKENS, "steps": TOKENS}, its answer {"ms": MILLISECONDS}: the processor time
of a token after the prompt.
"""
import json
import os
import statistics
import sys
import tempfile
import time
import urllib.request

import gguf
import numpy as np
import xllamacpp

LAYERS, WIDTH, HIDDEN, HEADS, KEYS, VOCABULARY = 30, 576, 1536, 9, 3, 49152


def write_model(path):
    """Writes the model as a GGUF file."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_context_length(2048)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KEYS)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_rope_freq_base(10000.0)
    w.add_rope_dimension_count(WIDTH // HEADS)
    w.add_vocab_size(VOCABULARY)
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    kinds = [gguf.TokenType.UNKNOWN] + [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.BYTE] * 256
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + [f"t{i}" for i in range(VOCABULARY - 259)])
    w.add_token_scores([-float(i) for i in range(VOCABULARY)])
    w.add_token_types(kinds + [gguf.TokenType.NORMAL] * (VOCABULARY - len(kinds)))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    random = np.random.default_rng(1)

    def weight(name, rows, cols):
        x = random.standard_normal((rows, cols), dtype=np.float32) * np.float32(0.04)
        w.add_tensor(name + ".weight", gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)

    def norm(name):
        w.add_tensor(name + ".weight", np.ones(WIDTH, np.float32))

    weight("token_embd", VOCABULARY, WIDTH)
    norm("output_norm")
    keys = WIDTH // HEADS * KEYS
    for i in range(LAYERS):
        block = f"blk.{i}."
        norm(block + "attn_norm")
        norm(block + "ffn_norm")
        for name, rows, cols in (("attn_q", WIDTH, WIDTH), ("attn_k", keys, WIDTH), ("attn_v", keys, WIDTH), ("attn_output", WIDTH, WIDTH),
                                 ("ffn_gate", HIDDEN, WIDTH), ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN)):
            weight(block + name, rows, cols)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def open_server(path):
    p = xllamacpp.CommonParams()
    p.model.path = path
    p.n_parallel, p.n_ctx = 1, 2048
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1
    p.port, p.verbosity = 0, 0
    p.fit_params = False
    p.cache_type_k = p.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    return xllamacpp.Server(p)


def ask(server, path, body=None):
    """Returns the answer to a request, which a busy machine may take minutes for."""
    r = urllib.request.Request(server.listening_address + path, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=600) as a:
        return json.load(a)


def wait(server, seconds=600):
    """Waits until the server answers: it listens before it has read its model."""
    end = time.monotonic() + seconds
    while True:
        try:
            return ask(server, "/health")
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


def decode(server, prompt, steps):
    """Returns the processor time of a request of that many tokens."""
    ids = [1] + [259 + i * 7919 % (VOCABULARY - 259) for i in range(prompt - 1)]
    body = {"prompt": ids, "max_tokens": steps, "temperature": 0, "ignore_eos": True, "cache_prompt": True}
    start = time.process_time()
    used = ask(server, "/v1/completions", body)["usage"]["completion_tokens"]
    if used != steps:
        raise ValueError(f"{used} tokens in place of {steps}")
    return time.process_time() - start


def main():
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the library prints is no answer
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "q8_0.gguf")
        write_model(path)
        server = open_server(path)
        wait(server)
        print(json.dumps({"impl": f"xllamacpp {xllamacpp.__version__}", "settings": "Q8_0, one thread"}), file=out, flush=True)
        for line in sys.stdin:
            c = json.loads(line)
            try:
                prompt, steps = c["prompt"], c["steps"]
                decode(server, prompt, 1)  # whose prompt the next calls find
                rest = [decode(server, prompt, steps + 1) - decode(server, prompt, 1) for _ in range(3)]
                print(json.dumps({"ms": 1e3 * statistics.median(rest) / steps}), file=out, flush=True)
            except Exception as e:
                print(json.dumps({"error": str(e)[:300]}), file=out, flush=True)
        os._exit(0)


main()
