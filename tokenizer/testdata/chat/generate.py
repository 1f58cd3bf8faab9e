#!/usr/bin/env python3
"""Writes cases.json: what jinja2, set up as transformers' apply_chat_template does,
makes of the templates here. Needs jinja2 (made with 3.1.6). constructs.jinja is cut at
its numbered lines, each a template of its own after the first part."""
import datetime, glob, json, os, re
import jinja2, jinja2.ext, jinja2.nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

class Generation(jinja2.ext.Extension):
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return body

def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)

def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                    extensions=[Generation, jinja2.ext.loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 1, 2, 3, 4, 5).strftime(f)

U = {"role": "user", "content": " Why is the sky blue? "}
S = {"role": "system", "content": "Be brief.\n"}
A = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nRayleigh."}
V = {"role": "user", "content": "Und \"jetzt\"? é {{ x }}"}
TALKS = [[U], [S, U], [U, A, V], [S, U, A, V], [U, A], [A, U]]

def case(name, source, messages, add):
    c = {"name": name, "messages": messages, "add_generation_prompt": add}
    try:
        c["want"] = env.from_string(source).render(messages=messages, add_generation_prompt=add,
                                                   bos_token="<s>", eos_token="</s>")
    except jinja2.exceptions.TemplateError as e:
        c["error"] = str(e)
    return c

here = os.path.dirname(os.path.abspath(__file__))
cases = []
for path in sorted(glob.glob(here + "/*.jinja")):
    name, source = os.path.basename(path)[:-6], open(path).read()
    if name == "constructs":
        head, *lines = re.split(r"(?m)^(?=\d+ )", source)
        for line in lines:
            number = line.split()[0]
            cases.append(dict(case(f"{name}/{number}", head + line, [U, V], True), source=head + line))
        continue
    for messages in TALKS:
        for add in (True, False):
            cases.append(case(name, source, messages, add))
json.dump(cases, open(here + "/cases.json", "w"), ensure_ascii=False, indent=1)
