"""Random templates and what jinja2 renders of them, in the environment of transformers' chat templates.

    python3 differential.py SEED COUNT

writes the variables as JSON on a line, then an object a line: source, and want (the text) or error. Needs jinja2 3.1.
renderings.jsonl is what it wrote for seed 26 and 400 renderings with jinja2 3.1.6.
"""
import json, random, sys
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):  # as transformers' AssistantTracker: a call block
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def refuse(message):
    raise ValueError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"], env.globals["raise_exception"] = tojson, refuse
rnd = random.Random(int(sys.argv[1]))
pick = rnd.choice

VARS = {
    "s": "Hello, <World> it's \"fine\"", "t": "  two words\n", "u": "äöü ß Ǆ 中文 😀", "e": "", "n": 7, "m": -3, "z": 0, "f": 2.5, "g": 1e20, "h": 0.1, "yes": True, "no": False, "nil": None,
    "l": [3, 1, 2], "w": ["b", "A", "c", "a"], "x": [1, "a", None, 2.0, True], "ee": [], "d": {"b": 1, "a": "x y", "C": None, "items": 3}, "ed": {},
    "rows": [{"role": "user", "content": "hi there", "n": 2}, {"role": "assistant", "content": None, "n": 1, "tool": {"name": "f", "args": {"q": [1, 2], "é": "ü"}}}, {"role": "user", "content": "", "n": 3}],
}
NAMES = list(VARS) + ["missing"]
METHODS = ["upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('H,. o')", "split()", "split(' ')", "split('o', 1)", "rsplit(' ', 1)", "rsplit(None, 1)", "split(None, 1)", "splitlines()", "startswith('He')", "endswith(('x', 'ds\\n'))",
           "replace('o', '0')", "replace('l', 'L', 1)", "find('o')", "rfind('o')", "count('o')", "isdigit()", "isalpha()", "isupper()", "islower()", "isspace()", "partition(' ')", "rpartition(' ')", "removeprefix('He')", "removesuffix('e')", "swapcase()",
           "center(12)", "ljust(9, '.')", "rjust(9)", "zfill(9)", "items()", "keys()", "values()", "get('b')", "get('q', 5)", "index(1)", "append(1)", "join(w)", "istitle()", "isalnum()", "casefold()", "format(1, b=2)", "expandtabs(4)", "copy()"]
FILTERS = ["upper", "lower", "title", "capitalize", "trim", "length", "count", "list", "first", "last", "join", "join(', ')", "join('-', attribute='role')", "reverse", "sort", "sort(reverse=true)", "sort(attribute='n')", "unique", "map(attribute='role')",
           "map('upper')", "map(attribute='q', default='-')", "select", "reject", "selectattr('content')", "rejectattr('role', 'equalto', 'user')", "selectattr('n', '>', 1)", "select('string')", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(separators=(',', ':'))",
           "tojson(ensure_ascii=true)", "default('dd')", "default('dd', true)", "d(1)", "string", "int", "int(9)", "float", "abs", "round", "round(1)", "round(1, 'floor')", "replace('l', 'L')", "replace('l', '<', 1)", "indent", "indent(2, true)", "indent(width=3, blank=true)", "items", "dictsort",
           "dictsort(false, 'value')", "max", "min", "sum", "batch(2)", "slice(2)", "safe", "escape", "e", "wordcount", "truncate(9)", "truncate(9, true)", "center(20)", "groupby('role')", "format(3)", "attr('upper')", "map('length')", "urlencode", "forceescape"]
TESTS = ["defined", "undefined", "none", "string", "mapping", "sequence", "iterable", "number", "integer", "float", "boolean", "true", "false", "odd", "even", "divisibleby(3)", "divisibleby 2", "eq 7", "in [7, 'a', none]", "lower", "upper", "callable", "sameas none", "ne(3)", "gt 1", "le 7"]
BIN = ["+", "-", "*", "/", "//", "%", "** 2 +", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
LITS = ["0", "1", "2", "-1", "3.5", "1e3", "'a'", "\"b\\n\"", "''", "'%s'", "'%d-%5.1f' ", "true", "False", "none", "[]", "[1, 'a']", "(1, 2)", "(1,)", "{}", "{'k': 1}", "{'a': [1], 2: none}", "'l'", "'\\u00e9'", "range(3)", "range(4, 0, -2)"]


def expr(k):
    c = rnd.random()
    if k <= 0 or c < 0.22:
        return pick(NAMES) if rnd.random() < 0.7 else pick(LITS)
    a = lambda: expr(k - 1)
    if c < 0.36: return f"{a()}|{pick(FILTERS)}"
    if c < 0.44: return f"{a()}.{pick(METHODS)}"
    if c < 0.50: return f"{a()} is {'not ' if rnd.random() < 0.3 else ''}{pick(TESTS)}"
    if c < 0.70: return f"({a()} {pick(BIN)} {a()})" if rnd.random() < 0.6 else f"{a()} {pick(BIN)} {a()}"
    if c < 0.74: return f"{pick(NAMES)}[{pick([':', '1:', ':2', '::-1', '-2:', '1:-1', '::2', a() + ':'])}]"
    if c < 0.79: return f"{a()}[{a()}]"
    if c < 0.83: return f"{a()}.{pick(['role', 'content', 'b', 'tool', 'items', 'x', '0'])}"
    if c < 0.88: return f"({a()} if {a()}{' else ' + a() if rnd.random() < 0.7 else ''})"
    if c < 0.91: return f"not {a()}"
    if c < 0.93: return f"-{a()}"
    if c < 0.96: return f"[{a()}, {a()}]"
    if c < 0.98: return f"{{{pick(['1', repr('k'), a()])}: {a()}}}"
    return f"m1({a()}, {a()})"


TEXT = ["x", " ", "\n", "  \n", "a b\n  ", "\n\n", "{", "}", "%}", "é"]
B = lambda s: f"{{%{pick(['', '', '', '-', '+'])} {s} {pick(['', '', '', '-', '+'])}%}}"


def body(k, loop=False):
    return "".join(stmt(k, loop) for _ in range(rnd.randrange(1, 4)))


def stmt(k, loop):
    c = rnd.random()
    if c < 0.30: return pick(TEXT)
    if c < 0.62 or k <= 0: return f"{{{{{pick(['', '', '-'])} {expr(rnd.randrange(3))} {pick(['', '', '-'])}}}}}"
    if c < 0.70: return B(f"if {expr(2)}") + body(k - 1, loop) + (B(f"elif {expr(1)}") + body(k - 1, loop) if rnd.random() < 0.3 else "") + (B("else") + body(k - 1, loop) if rnd.random() < 0.5 else "") + B("endif")
    if c < 0.80:
        it = pick(["l", "w", "rows", "x", "range(3)", "d", "s", "ee", "missing", "d.items()", expr(1)])
        head = pick([f"for a in {it}", f"for a in {it} if a", f"for a, b in d.items()", f"for a in {it} if loop is defined", f"for s in {it}"])
        show = pick(["", "{{ loop.index }}", "{{ loop.last }}", "{{ loop.revindex0 }}{{ loop.previtem }}", "{{ a }}", "{{ loop.cycle(1, 2) }}", "{{ loop.changed(a is string) }}", "{{ loop.nextitem|tojson if not loop.last }}", "{{ loop.length }}"])
        return B(head) + show + body(k - 1, True) + (B("else") + body(k - 1, loop) if rnd.random() < 0.2 else "") + B("endfor")
    if c < 0.86: return B(f"set {pick(['v', 's', 'n', 'v, q', 'ns.c'])} = {expr(2)}") + pick(["{{ v }}", "{{ n }}", "{{ ns.c }}", ""])
    if c < 0.88: return B(f"set v{pick(['', ' | upper', ' | trim'])}") + body(k - 1) + B("endset") + "{{ v }}"
    if c < 0.90: return B(f"macro m2(p, q={expr(0)})") + "{{ p }}{{ q }}" + pick(["", "{{ caller() if caller }}", "{{ varargs }}", "{{ kwargs }}"]) + B("endmacro") + f"{{{{ m2({pick(['', '1', '1, 2', 'q=3', '1, 2, 3', 'q=1, r=2'])}) }}}}"
    if c < 0.92: return B(f"call m3({expr(0)})") + body(k - 1) + B("endcall")
    if c < 0.94: return B("generation") + body(k - 1) + B("endgeneration")
    if c < 0.95: return B(f"filter {pick(['upper', 'trim', 'indent(2)', 'upper | trim'])}") + body(k - 1) + B("endfilter")
    if c < 0.96: return B(f"with v = {expr(1)}, q = 2") + body(k - 1, loop) + "{{ q }}" + B("endwith")
    if c < 0.97: return B("raw") + "{{ x }}{% y \n " + B("endraw")
    if c < 0.985: return "{#" + pick(["", "-", "+"]) + " note\n" + pick(["", "-", "+"]) + "#}" + pick(TEXT)
    return B(f"if {expr(1)}") + B(pick(["break", "continue"])) + B("endif") if loop else ""


HEAD = "{% set ns = namespace(c=0, l=[]) %}{% macro m1(a, b=2) %}<{{ a }}|{{ b }}>{% endmacro %}{% macro m3(a) %}[{{ a }}{{ caller() }}]{% endmacro %}"
print(json.dumps(VARS))
made = 0
while made < int(sys.argv[2]):
    source = HEAD + body(3)
    row = {"source": source}
    try:
        row["want"] = env.from_string(source).render(**json.loads(json.dumps(VARS)))
    except RecursionError:
        continue
    except Exception as ex:
        row["error"] = f"{type(ex).__name__}: {ex}"[:200]
    text = row.get("want", "")
    if len(text) > 100000 or any(w in text.lower() for w in (" object", "&lt;gen", "undefined", "<list_rev", "built-in", "function", "itera")) or "append" in source:
        continue  # addresses, and what differs on purpose
    print(json.dumps(row))
    made += 1
