"""Speaks with two servers as users' programs do, and prints what each gives. Exit status 1 if one fails.

    farfield serve --model stories260K-with-a-template --addr 127.0.0.1:8491 --name tiny
    farfield serve --model all-MiniLM-L6-v2 --addr 127.0.0.1:8492 --name minilm
    python3 lab/openai/clients.py http://127.0.0.1:8491/v1 http://127.0.0.1:8492/v1 TOKENIZER

TOKENIZER is the folder of the first model, for lm-evaluation-harness. Needs openai, langchain-openai,
llama-index-llms-openai-like, llama-index-embeddings-openai-like, lm_eval and transformers; a client that is not
installed is skipped and said.
"""

import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

text_url, vector_url, folder = sys.argv[1:4]
os.environ["OPENAI_API_KEY"] = "none-is-needed"
failures = []
SCHEMA = {"title": "Pet", "type": "object", "additionalProperties": False, "required": ["name", "age"],
          "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}}


def check(name):
    def run(f):
        try:
            print(f"{name}: {f()}", flush=True)
        except ImportError as e:
            print(f"{name}: skipped, {e}", flush=True)
        except Exception as e:
            failures.append(name)
            print(f"{name}: FAILED, {type(e).__name__}: {str(e)[:600]}", flush=True)
    return run


def post(url, body, headers={}):
    r = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(r) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


@check("openai, chat")
def _():
    from openai import OpenAI
    c = OpenAI(base_url=text_url)
    first = c.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Once upon a time"}], max_tokens=12, temperature=0, n=2, logprobs=True, top_logprobs=2)
    assert len(first.choices) == 2 and len(first.choices[0].logprobs.content) == 12, first
    # An answer goes back as a message, with all its fields.
    again = c.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Once"}, first.choices[0].message.model_dump()], max_tokens=8)
    parts = [p.choices[0].delta.content or "" for p in c.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "Once upon a time"}], max_tokens=12, temperature=0, stream=True) if p.choices]
    assert "".join(parts) == first.choices[0].message.content, parts
    return repr(first.choices[0].message.content), again.usage.total_tokens


@check("openai, structured output")
def _():
    from openai import OpenAI
    from pydantic import BaseModel

    class Step(BaseModel):
        text: str
        done: bool | None = None

    class Plan(BaseModel):
        goal: str
        steps: list[Step]

    c = OpenAI(base_url=text_url)
    schema = Plan.model_json_schema()
    r = c.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "A plan:"}], max_tokens=400, temperature=0.7, seed=3, logit_bias={},
                                  response_format={"type": "json_schema", "json_schema": {"name": "plan", "schema": schema, "strict": True}}, frequency_penalty=0.5)
    content = r.choices[0].message.content
    if r.choices[0].finish_reason == "stop":
        Plan.model_validate_json(content)
    return r.choices[0].finish_reason, content[:120]


@check("openai, tools")
def _():
    from openai import OpenAI
    tools = [{"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}}}]
    c = OpenAI(base_url=text_url)
    messages = [{"role": "user", "content": "weather in Rome"}]
    r = c.chat.completions.create(model="tiny", messages=messages, tools=tools, tool_choice="required", max_tokens=200)
    call = r.choices[0].message.tool_calls[0]
    assert r.choices[0].finish_reason == "tool_calls" and set(json.loads(call.function.arguments)) == {"city"}, r
    messages += [r.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
    r = c.chat.completions.create(model="tiny", messages=messages, tools=tools, max_tokens=8)
    return call.function.arguments, repr(r.choices[0].message.content)


@check("openai, embeddings")
def _():
    from openai import OpenAI
    v = OpenAI(base_url=vector_url).embeddings.create(model="minilm", input=["a cat", "a dog"], dimensions=384)
    return len(v.data), len(v.data[0].embedding), sum(x * x for x in v.data[0].embedding)


@check("langchain, chat, stream and structured output")
def _():
    from langchain_openai import ChatOpenAI
    m = ChatOpenAI(base_url=text_url, model="tiny", max_tokens=200, temperature=0.5, seed=1)
    text = m.invoke("Once upon a time").content
    parts = [p.content for p in m.stream("Once upon a time")]
    pet = m.with_structured_output(SCHEMA).invoke("A cat named Tom is 3 years old.")
    called = m.with_structured_output(SCHEMA, method="function_calling").invoke("A cat named Tom is 3 years old.")
    loose = m.with_structured_output(method="json_mode", schema=SCHEMA, include_raw=True).invoke("A cat")
    return repr(text[:40]), len(parts), pet, called, str(loose["raw"].content)[:60]


@check("langchain, default embeddings")
def _():
    from langchain_openai import OpenAIEmbeddings
    try:
        OpenAIEmbeddings(base_url=vector_url, model="minilm").embed_documents(["the tokens of another model"])
        refused = "taken"
    except Exception as e:  # ids of OpenAI's tokenizer are refused, or the tokenizer cannot be loaded without a network
        refused = f"{type(e).__name__}: {str(e)[:160]}"
    status, text = post(vector_url + "/embeddings", {"model": "minilm", "input": [[1820, 11460, 315, 2500, 1646]]})
    assert status == 400 and "check_embedding_ctx_length" in text, text
    v = OpenAIEmbeddings(base_url=vector_url, model="minilm", check_embedding_ctx_length=False).embed_documents(["a cat", "a dog"])
    return refused, len(v), len(v[0])


@check("llama-index")
def _():
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike
    m = OpenAILike(api_base=text_url, model="tiny", is_chat_model=False, max_tokens=10, api_key="none", temperature=0)
    chat = OpenAILike(api_base=text_url, model="tiny", is_chat_model=True, max_tokens=10, api_key="none", temperature=0)
    parts = [p.delta for p in m.stream_complete("Once upon a time")]
    from llama_index.core.llms import ChatMessage
    v = OpenAILikeEmbedding(api_base=vector_url, model_name="minilm", api_key="none").get_text_embedding_batch(["a cat", "a dog"])
    return repr(m.complete("Once upon a time").text), len(parts), repr(chat.chat([ChatMessage(role="user", content="Once")]).message.content), len(v[0])


@check("open webui's shapes")
def _():
    got = []
    for body in [
        {"stream": True, "model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "stream_options": {"include_usage": True}},
        {"stream": False, "model": "tiny", "messages": [{"role": "user", "content": "Title?"}], "max_completion_tokens": 5, "metadata": {"task": "title_generation", "chat_id": "x"}},
        {"stream": False, "model": "tiny", "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}], "max_tokens": 5, "frequency_penalty": 0.5, "presence_penalty": 0.1, "top_p": 0.9, "stop": ["END"], "seed": 4, "logit_bias": {"17": -5}, "min_p": 0.05, "top_k": 40, "repeat_penalty": 1.1, "reasoning_effort": None, "response_format": None},
    ]:
        status, text = post(text_url + "/chat/completions", body)
        assert status == 200, text
        got.append(len(text))
    with urllib.request.urlopen(text_url + "/models") as r:
        got.append([m["id"] for m in json.load(r)["data"]])
    return got


@check("lm-evaluation-harness, local-completions")
def _():
    import lm_eval
    with tempfile.TemporaryDirectory() as d:
        rows = [{"text": f"{a} was a {b} who liked to", "good": "play", "bad": "xqz"} for a in ("Tom", "Lily", "Ben", "Sue") for b in ("cat", "dog", "girl", "boy", "bird")]
        with open(d + "/rows.jsonl", "w") as f:
            f.writelines(json.dumps(r) + "\n" for r in rows)
        with open(d + "/choose.yaml", "w") as f:
            f.write(f"""task: choose
dataset_path: json
dataset_kwargs: {{data_files: {{test: {d}/rows.jsonl}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{text}}}}"
doc_to_choice: "{{{{[good, bad]}}}}"
doc_to_target: 0
metric_list: [{{metric: acc}}]
""")
        args = f"base_url={text_url}/completions,model=tiny,tokenizer={folder},tokenized_requests=True,num_concurrent=1,max_length=512"
        r = subprocess.run([sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args", args, "--tasks", "choose", "--include_path", d, "--batch_size", "4", "--output_path", d + "/out"],
                           capture_output=True, text=True, timeout=500)
        assert r.returncode == 0, r.stderr[-3000:][-700:]
        line = [x for x in r.stdout.splitlines() if "|choose" in x]
        return line


print("failed:", failures or "none")
sys.exit(1 if failures else 0)
