"""Writes testdata/families.json: texts that transformers' chat templates give.

    python3 families.py >families.json

The templates have the constructs of those that current models ship. Their texts are this project's own.
"""

import json
import sys

from transformers import __version__
from transformers.utils.chat_template_utils import render_jinja_template

T = {}
T["deepseek-r1"] = """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='') %}{%- for message in messages %}{%- if message['role'] == 'system' %}{% set ns.system_prompt = ns.system_prompt + message['content'] + '\\n' %}{%- endif %}{%- endfor %}{{ bos }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<U>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if loop.first %}{{'<A><calls>'}}{%- else %}{{'\\n'}}{%- endif %}{{'<call>' + tool['type'] + '<sep>' + tool['function']['name'] + '\\n```json\\n' + (tool['function']['arguments'] | tojson) + '\\n```<end>'}}{%- endfor %}{{'</calls>'}}{%- elif message['role'] == 'assistant' %}{%- set content = message['content'] or '' %}{%- if '</think>' in content %}{%- set content = content.split('</think>')[-1].lstrip('\\n') %}{%- endif %}{{'<A>' + content + '<eos>'}}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{'<outs><out>' + message['content'] + '</out>'}}{%- set ns.is_output_first = false %}{%- else %}{{'<out>' + message['content'] + '</out>'}}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'</outs>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<A><think>\\n'}}{% endif %}"""
T["deepseek-v3"] = """{%- macro render_tools(list) -%}
## Tools
{% for tool in list if tool.type == 'function' -%}
### {{ tool.function.name }}
{{ tool.function.description | default('no words', true) }}
{{ tool.function.parameters | tojson(indent=2) }}
{% endfor %}
{%- endmacro -%}
{{ bos_token }}{% set last_user = namespace(at=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set last_user.at = loop.index0 %}{% endif %}{% endfor %}
{%- if tools %}{{ render_tools(tools) }}{% endif %}
{%- for m in messages %}
{%- if 0 <= loop.index0 < last_user.at %}[{{ m.role | title }}]{% else %}<{{ m.role | upper }}>{% endif %}
{%- if m.content is string %} {{ m.content | trim }}{% elif m.content is none %} (none){% endif %}
{%- for call in m.tool_calls or [] %} call {{ call.function.name }}({% for k, v in call.function.arguments | dictsort %}{{ k }}={{ v | tojson }}{{ ', ' if not loop.last }}{% endfor %}){% endfor %}
{% endfor %}
{%- if add_generation_prompt %}<ASSISTANT>{% endif %}"""
T["glm-4"] = """[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}
        {{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}
            {%- if item is mapping and item.type == 'text' -%}
                {{- item.text }}
            {%- elif item is string -%}
                {{- item }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{- content }}
    {%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- set ns.last_user_index = loop.index0 -%}
    {%- endif %}
{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}
{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}
    {%- set reasoning_content = m.reasoning_content %}
{%- else %}
    {%- if '</think>' in content %}
        {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\\n<think>' + reasoning_content.strip() +  '</think>'}}
{%- else -%}
{{ '\\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}
    {%- set tc = tc.function %}
{%- endif %}
{{ '\\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}
    {{- '<|observation|>' }}
{%- endif %}
{{- '\\n<tool_response>\\n' }}
{{- m.content }}
{{- '\\n</tool_response>' }}
{%- endif -%}
{%- elif m.role == 'system' -%}
<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    <|assistant|>{{- '\\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}
{%- endif -%}"""
T["kimi-k2"] = """{%- macro render_content(msg) -%}
    {%- set c = msg.get('content') -%}
    {%- if c is string -%}
      {{ c }}
    {%- elif c is not none -%}
      {% for content in c -%}
        {% if content['type'] == 'image' or 'image' in content or 'image_url' in content -%}
          <|media|>
        {% else -%}
          {{ content['text'] }}
        {%- endif -%}
      {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{% macro set_roles(message) -%}
  {%- set role_name =  message.get('name') or  message['role'] -%}
  {%- if message['role'] == 'user' -%}
    <|im_user|>{{role_name}}<|im_middle|>
  {%- elif message['role'] == 'assistant' -%}
    <|im_assistant|>{{role_name}}<|im_middle|>
  {%- else -%}
    <|im_system|>{{role_name}}<|im_middle|>
  {%- endif -%}
{%- endmacro -%}
{%- if tools -%}
  <|im_system|>tool_declare<|im_middle|>{{ tools | tojson(separators=(',', ':')) }}<|im_end|>
{%- endif -%}
{%- for message in messages -%}
  {%- if loop.first and messages[0]['role'] != 'system' -%}
  <|im_system|>system<|im_middle|>You are an assistant.<|im_end|>
  {%- endif -%}
  {{ set_roles(message) }}
  {%- if message['role'] == 'assistant' and message.get('tool_calls') -%}
    {{ render_content(message) }}<|calls|>
    {%- for tool_call in message['tool_calls'] -%}
      {%- set func_name = tool_call['function']['name'] -%}
      {%- set formatted_id = tool_call['id'] or 'functions.%s:%d' % (func_name, loop.index0) -%}
      <|call|>{{ formatted_id }}<|args|>{{ tool_call['function']['arguments'] | tojson }}<|end|>
    {%- endfor -%}
    <|calls_end|>
  {%- elif message['role'] == 'tool' -%}
    ## Return of {{ message.tool_call_id }}
{{ render_content(message) }}
  {%- elif message['content'] is not none -%}
  {{ render_content(message) }}
  {%- endif -%}
  <|im_end|>
{%- endfor -%}
{%- if add_generation_prompt -%}
  <|im_assistant|>assistant<|im_middle|>
{%- endif -%}"""
T["mistral-v3"] = """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("roles must alternate user/assistant") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
            {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}
        {{- " " + message["content"]|trim + eos_token}}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}"""
T["mistral-small"] = """{%- set today = strftime_now("%Y-%m-%d") if false else "2026-11-29" %}
{%- set default_system = "Your knowledge ends on 2023-10-01. Today is " + today + "." %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}
        {%- set system_message = messages[0]['content'] %}
    {%- else %}
        {%- set system_message = messages[0]['content'][0]['text'] %}
    {%- endif %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = default_system %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if message['content'] is string %}
            {{- '[INST]' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST]' }}
            {%- for block in message['content'] | sort(attribute='type', reverse=true) %}
                {%- if block['type'] == 'text' %}
                    {{- block['text'] }}
                {%- elif block['type'] in ['image', 'image_url'] %}
                    {{- '[IMG]' }}
                {%- else %}
                    {{- raise_exception('Only text and image blocks are supported in message content!') }}
                {%- endif %}
            {%- endfor %}
            {{- '[/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'assistant' %}
        {%- if message['content'] is string %}{{- message['content'] }}{%- endif %}
        {{- eos_token }}
    {%- elif message['role'] == 'tool' %}
        {{- '[TOOL_RESULTS]' ~ message.content ~ '[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception('Only user, system and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}"""
T["qwen2.5"] = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helper.' }}
    {%- endif %}
    {{- "\\n\\n# Tools\\n\\nSignatures within <tools></tools> tags:\\n<tools>" }}
    {%- for tool in tools %}
        {{- "\\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nYou are a helper.<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' }}
        {{- message.content }}
        {{- '\\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
T["qwen3"] = """{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query_index and (loop.last or (not loop.last and reasoning_content)) %}
            {{- '<|im_start|>' + message.role + '\\n<think>\\n' + reasoning_content.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\\n' + content }}
        {%- endif %}
        {%- if message.tool_calls %}
            {%- for tool_call in message.tool_calls %}
                {%- if (loop.first and content) or (not loop.first) %}
                    {{- '\\n' }}
                {%- endif %}
                {%- if tool_call.function %}
                    {%- set tool_call = tool_call.function %}
                {%- endif %}
                {{- '<tool_call>\\n{"name": "' ~ tool_call.name ~ '", "arguments": ' }}
                {%- if tool_call.arguments is string %}
                    {{- tool_call.arguments }}
                {%- else %}
                    {{- tool_call.arguments | tojson }}
                {%- endif %}
                {{- '}\\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.first or (loop.previtem and loop.previtem.role != "tool") %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
        {%- if loop.last or (loop.nextitem and loop.nextitem.role != "tool") %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}"""
T["qwen3-coder"] = """{% macro render_extra_keys(json_dict, handled_keys) %}
    {%- if json_dict is mapping %}
        {%- for json_key in json_dict if json_key not in handled_keys %}
            {%- if json_dict[json_key] is mapping or (json_dict[json_key] is sequence and json_dict[json_key] is not string) %}
                {{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | tojson | safe) ~ '</' ~ json_key ~ '>' }}
            {%- else %}
                {{-'\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}
            {%- endif %}
        {%- endfor %}
    {%- endif %}
{% endmacro %}
{%- if tools is iterable and tools | length > 0 %}
    {{- '<tools>' }}
    {%- for tool in tools %}
        {%- if tool.function is defined %}
            {%- set tool = tool.function %}
        {%- endif %}
        {{- '\\n<function>\\n<name>' ~ tool.name ~ '</name>' }}
        {%- if tool.description is defined %}
            {{- '\\n<description>' ~ (tool.description | trim) ~ '</description>' }}
        {%- endif %}
        {{- '\\n<parameters>' }}
        {%- if tool.parameters is defined and tool.parameters is mapping and tool.parameters.properties is defined and tool.parameters.properties is mapping %}
            {%- for param_name, param_fields in tool.parameters.properties|items %}
                {{- '\\n<parameter>\\n<name>' ~ param_name ~ '</name>' }}
                {%- set handled_keys = ['name', 'type', 'description'] %}
                {{- render_extra_keys(param_fields, handled_keys) }}
                {{- '\\n</parameter>' }}
            {%- endfor %}
        {%- endif %}
        {{- render_extra_keys(tool.parameters, ['type', 'properties']) }}
        {{- '\\n</parameters>' }}
        {{- render_extra_keys(tool, ['type', 'name', 'description', 'parameters']) }}
        {{- '\\n</function>' }}
    {%- endfor %}
    {{- '\\n</tools>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "assistant" and message.tool_calls is defined and message.tool_calls is iterable and message.tool_calls | length > 0 %}
        {{- '<|im_start|>' + message.role }}
        {%- for tool_call in message.tool_calls %}
            {{- '\\n<function=' + tool_call.function.name + '>\\n' }}
            {%- for args_name, args_value in tool_call.function.arguments|items %}
                {{- '<parameter=' + args_name + '>\\n' }}
                {%- set args_value = args_value if args_value is string else args_value | string %}
                {{- args_value }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>' }}
        {%- endfor %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""
T["llama-2"] = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}{{ ' '  + (content or '').strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""
T["llama-3.1"] = """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("there is no first user message") }}
{%- endif %}
    {{- '<|start|>user<|end|>\\n\\n' -}}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("only single tool-calls at once") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|end|>\\n\\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start|>ipython<|end|>\\n\\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}"""
T["llama-4"] = """{{- bos_token }}
{%- with names = messages | map(attribute='role') | unique | sort | list, total = messages | length %}
{{- '<|header|>' ~ names | join(',') ~ ':' ~ total ~ '\\n' }}
{%- endwith %}
{%- for message in messages %}
{%- filter trim %}
    {{ '<|%s|>' % message.role }}{% if message.content is string %} {{ message.content }}{% elif message.content is not none %}{% for part in message.content %} {{ part.text if part.type == 'text' else '<|image|>' }}{% endfor %}{% endif %}
{% endfilter %}
{%- for call in message.tool_calls or () %}
{{- '[%s(%s)]' % (call.function.name, call.function.arguments | tojson(sort_keys=True)) }}
{%- endfor %}
{{- loop.cycle('<|eom|>', '<|eot|>') }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|assistant|>' }}{%- endif %}"""
T["gemma-2"] = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\\n' + (message['content'] or '') | trim + '<end_of_turn>\\n' }}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"""
T["gemma-3"] = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\\n\\n' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '\\n\\n' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '\\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- elif message['content'] is none -%}
        {{ '' }}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\\n'}}
{%- endif -%}"""
T["phi-3"] = """{% for message in messages %}{% if message['role'] == 'system' and message['content'] %}{{'<|system|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\\n' + message['content'] + '<|end|>\\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\\n' + (message['content'] or '') + '<|end|>\\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}"""
T["phi-4"] = """{%- for message in messages -%}
{%- if message.role == 'system' and 'tools' in message and message.tools is not none -%}
{{- '<|' ~ message.role ~ '|>' ~ message.content ~ '<|tool|>' ~ message.tools ~ '<|/tool|>' ~ '<|end|>' -}}
{%- else -%}
{{- '<|' ~ message.role ~ '|>' ~ (message.content | default('', true)) ~ '<|end|>' -}}
{%- endif -%}
{%- if tools and loop.first %}{{ tools | map(attribute='function.name') | sort | join('; ') }}{% endif -%}
{%- endfor -%}
{{- '<|assistant|>' if add_generation_prompt else eos_token -}}"""
T["granite"] = """{%- macro section(title, level=2) %}
{{ '#' * level }} {{ title | capitalize }}
{{ caller() | indent(2, first=true) }}
{% endmacro %}
{%- if tools %}{% call section('tools', level=3) %}{% for t in tools %}
- {{ t.function.name }}: {{ t.function.parameters.required | default([]) | join(', ') }}
{%- endfor %}{% endcall %}{% endif %}
{%- for m in messages %}
{%- set text = (m.content if m.content is string else '') %}
{%- call(mark) section(m.role) %}{{ text | replace('\\n', ' ') }}{{ mark }}{% endcall %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '> ' }}{% endif %}"""
T["command-r"] = """{%- macro json_schema(schema) -%}
{%- for name, field in schema.properties.items() %}{{ name }}: {{ {'string': 'str', 'integer': 'int', 'number': 'float', 'array': 'list'}.get(field.type, field.type) }}{% if name not in schema.required | default([]) %}?{% endif %}{{ ', ' if not loop.last }}{% endfor -%}
{%- endmacro -%}
{{ bos_token }}{% for t in tools or [] %}def {{ t.function.name }}({{ json_schema(t.function.parameters) }}) -> dict:
    \"\"\"{{ t.function.description | default('') | wordcount }} words\"\"\"
{% endfor %}{% for m in messages | rejectattr('role', 'equalto', 'system') %}{{ loop.index }}/{{ loop.length }} {{ m.role.title() }}: {{ (m.content | string)[:40] }}{% if m.tool_calls %} {{ m.tool_calls | map(attribute='function') | map(attribute='arguments') | list }}{% endif %}
{% else %}nobody
{% endfor %}{% set counts = dict() %}{{ 'turns=%03d mean=%.2f' % (messages | length, (messages | length) / 3) }}{% if add_generation_prompt %}<|turn|>{% endif %}"""
T["smollm"] = """{%- set defaults = {'a': 1, 'b': [true, none, 2.5], 'ü': 'é"\\\\'} -%}
{{ defaults | tojson(ensure_ascii=true) }} {{ defaults }} {{ defaults | dictsort(reverse=true) | first | last }}
{%- for key, group in [('x', 1), ('y', 2)] %} {{ key }}{{ group }}{{ [1, 2, 3] | sum + group }}{{ '%5.1f|%-4s|%x' % (group / 3, key, 255) }}{% endfor %}
{%- set first, rest = messages[0], messages[1:] %}
{{ first.role }}:{{ first.content is string }} {{ rest | length }} {{ 'x' if 1 < rest | length <= 3 else 'y' }} {{ messages.0.role }} {{ 2 ** 5 }} {{ 7.0 | round(1) }} {{ 3.14159 | round(2) }} {{ '12' | int + 1 }} {{ [3, 1, 2] | max }} {{ ['b', 'A', 'c'] | sort | join }} {{ 'a-b c' | title }} {{ [1, 1, 2] | unique | list }}
{%- set text | upper %}
shout {{ messages | length }}
{%- endset %}
{{ text }} {{ 5 is divisibleby 5 }} {{ 'abc' is in ['abc'] }} {{ messages | map(attribute='role') | map('upper') | join('+') }}
{%- if add_generation_prompt %} go{% endif %}"""

TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "The weather of a city, with “quotes”.", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "Its name"}, "days": {"type": "integer", "enum": [1, 3]}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "add", "description": "Adds <numbers> & more", "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}},
]
S, U, A = {"role": "system", "content": "Be brief.\n"}, {"role": "user", "content": " Where is Köln? "}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nOn the Rhine. "}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_0001", "type": "function", "function": {"name": "weather", "arguments": {"city": "Köln", "days": 3}}}]}
OUT = {"role": "tool", "tool_call_id": "call_0001", "content": '{"rain": true}'}
CONVERSATIONS = {
    "one": ([U], None, True), "system": ([S, U, A, {"role": "user", "content": "And Bonn?"}], None, True), "tools": ([S, U], TOOLS, True),
    "calls": ([U, CALL, OUT], TOOLS, True), "answered": ([U, CALL, OUT, A, {"role": "user", "content": "Thanks"}], TOOLS[:1], False), "continued": ([U, {"role": "assistant", "content": "It lies "}], None, False),
}


def main():
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    cases = []
    for name, template in T.items():
        for kind, (messages, tools, prompt) in CONVERSATIONS.items():
            case = {"template": name, "conversation": kind}
            try:
                texts, _ = render_jinja_template(conversations=[messages], tools=tools, chat_template=template, add_generation_prompt=prompt, continue_final_message=kind == "continued", **special)
                case["text"] = texts[0]
            except Exception as e:
                case["error"] = str(e).split("\n")[0]
            cases.append(case)
    conversations = {k: {"messages": m, "tools": t, "prompt": p, "continues": k == "continued"} for k, (m, t, p) in CONVERSATIONS.items()}
    json.dump({"from": "transformers " + __version__, "templates": {k: v.split("\n") for k, v in T.items()}, "special": special, "conversations": conversations, "cases": cases}, sys.stdout, ensure_ascii=False, indent=1)
    print()


main()
