"""Render the templates of cases.json with Jinja2 3.1.6 as transformers does, and write the texts into it.

    python3 internal/chat/testdata/render.py internal/chat/testdata/cases.json
"""
import json
import sys

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment


def refuse(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
env.filters["tojson"] = lambda x: json.dumps(x, ensure_ascii=False)
env.globals["raise_exception"] = refuse

path = sys.argv[1]
cases = json.load(open(path))
for case in cases:
    try:
        case["text"] = env.from_string("\n".join(case["template"])).render(
            messages=case["messages"], add_generation_prompt=case.get("needs_answer", False),
            tools=None, documents=None, **case.get("special", {}))
        case.pop("refused", None)
    except jinja2.exceptions.TemplateError as e:
        case["refused"] = str(e)
        case.pop("text", None)
json.dump(cases, open(path, "w"), ensure_ascii=False, indent=1)
open(path, "a").write("\n")
