"""Draws random templates for make_templates.py: expressions of all types with filters, tests and methods, and statements around
them. Most are valid. Some fail on purpose: an operand has a wrong type, or a name does not exist."""

STRINGS = ["''", "'a'", "'Hello World'", "'  pad ded '", "'ünïcode ß'", "'x,y,,z'", "'ABC def'", "'1_000'", "' 12 '", "'3.7'",
           "'<b>&amp;'", "'line\\none\\r\\ntwo'", "\"it's\"", "'日本語 テキスト'", "'a-b-c'", "'%s|%d'", "'tab\\tq\"'", "s", "t", "u",
           "words[0]", "people[0].name", "messages[0].content", "messages[1]['role']", "bos_token"]
INTEGERS = ["0", "1", "-1", "2", "3", "7", "10", "-5", "1_000", "0x1f", "n", "m", "numbers[1]", "numbers|length",
            "people[1].age"]
FLOATS = ["0.5", "1.0", "-2.25", "1e3", "3.14159", "1e16", "1e-5", "x", "2.675"]
BOOLS = ["true", "false", "True", "flag", "not flag"]
LISTS = ["[]", "[1, 2, 3]", "numbers", "words", "['b', 'a', 'C']", "(1, 2)", "people", "range(4)", "range(5, 0, -2)",
         "[1, [2, 3]]", "mixed", "[0.5, 2]", "[none, 1]"]
DICTS = ["{}", "{'a': 1, 'b': 2}", "table", "people[0]", "{'k': [1, 2], 'z': {'y': none}}", "{1: 'one', 'x': 2.5}",
         "dict(a=1, b='q')", "messages[0]"]
OTHERS = ["none", "missing", "table.nothing", "people[9]"]
STRING_FILTERS = ["capitalize", "lower", "upper", "title", "trim", "e", "escape", "forceescape", "safe", "string", "striptags",
                  "urlencode", "reverse", "indent", "indent(2, true)", "indent('> ', blank=true)", "center(11)", "truncate(6)",
                  "truncate(7, true)", "truncate(5, false, '', 0)", "wordwrap(7)", "wordwrap(5, false)", "replace('a', 'bb')",
                  "replace('l', '', 1)", "trim('ab ')", "wordcount", "list", "first", "last", "length", "int", "float",
                  "int(7)", "int(0, 16)", "float(1.5)", "tojson", "join('-')", "default('d')", "d('d', true)", "format('q', 1)",
                  "unique|list", "batch(2)|list", "sort|join", "upper|lower|title", "filesizeformat", "xmlattr"]
NUMBER_FILTERS = ["abs", "round", "round(1)", "round(-1)", "round(2, 'ceil')", "round(1, 'floor')", "int", "float", "string",
                  "filesizeformat", "filesizeformat(true)", "tojson", "default(3)", "d(3, true)", "list", "length", "urlencode",
                  "e"]
LIST_FILTERS = ["list", "first", "last", "length", "count", "sum", "max", "min", "sort", "sort(reverse=true)",
                "sort(case_sensitive=true)", "reverse|list", "unique|list", "join", "join(', ')", "map('string')|list",
                "map('upper')|join(',')", "select|list", "reject|list", "select('odd')|list", "reject('string')|list",
                "select('>', 1)|list", "select('in', [1, 'a'])|list", "batch(2)|list", "batch(2, 'f')|list", "slice(2)|list",
                "slice(3, 0)|list", "tojson", "tojson(indent=2)", "string", "map(attribute='name')|list",
                "map(attribute='name', default='?')|list", "selectattr('age')|list|length",
                "selectattr('age', 'gt', 30)|map(attribute='name')|list", "rejectattr('age', 'even')|list|length",
                "map(attribute=0)|list", "groupby('age')|list", "groupby('kind', default='none')|list", "sum(attribute='age')",
                "sort(attribute='name')|map(attribute='age')|list", "min(attribute='age')", "map('int')|sum",
                "first|string|upper", "map('default', 'v')|list", "e", "random_filter", "map('length')|list",
                "sort(attribute='age,name')|list|length", "unique(true)|list", "map('first')|list", "dictsort", "items|list"]
DICT_FILTERS = ["dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)|list", "items|list", "list",
                "length", "tojson", "tojson(indent=1)", "tojson(separators=(',', ':'))", "tojson(sort_keys=true)",
                "tojson(ensure_ascii=true)", "string", "urlencode", "xmlattr", "first", "last", "join('+')", "max",
                "default('d', true)", "reverse|list", "map('upper')|list", "sum"]
TESTS = ["defined", "undefined", "none", "boolean", "callable", "escaped", "even", "odd", "false", "true", "float", "integer",
         "iterable", "lower", "upper", "mapping", "number", "sequence", "string", "divisibleby 3", "divisibleby(0)", "eq 1",
         "equalto('a')", "ne 2", "gt 1", "ge(2)", "lt 3", "le 1", "greaterthan 0", "lessthan 'b'", "in [1, 'a', none]",
         "in 'abc'", "sameas true", "filter", "test", "not none", "not defined", "not string"]
STRING_METHODS = ["upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip()", "rstrip('lo')",
                  "strip('a ')", "split()", "split(',')", "split(' ', 1)", "split(maxsplit=1)", "rsplit(',', 1)",
                  "rsplit(none, 1)", "splitlines()", "splitlines(true)", "partition(' ')", "rpartition('a')",
                  "replace('a', 'b')", "replace('', '.')", "replace('l', 'L', 1)", "startswith('a')", "startswith(('H', 'x'))",
                  "startswith('b', 1)", "endswith('d')", "endswith('', 99)", "find('l')", "rfind('l')", "find('l', 3, -1)",
                  "index('o')", "rindex('o')", "count('l')", "count('')", "isdigit()", "isalpha()", "isalnum()", "isspace()",
                  "islower()", "isupper()", "istitle()", "isdecimal()", "isascii()", "zfill(8)", "zfill(-1)", "center(9, '*')",
                  "ljust(6)", "rjust(7, '.')", "removeprefix('He')", "removesuffix('d')", "join(['x', 'y'])", "join('ab')",
                  "expandtabs(4)", "format(1, 'b')", "nothing", "nothing()", "pop()"]
LIST_METHODS = ["count(1)", "index(2)", "index('a')", "append(1)", "copy()", "pop", "sort()", "length"]
DICT_METHODS = ["get('a')", "get('q', 7)", "get('name', none)", "items()|list", "keys()|list", "values()|list", "items()",
                "keys()", "a", "b", "update({})", "pop('a')", "copy()", "name", "content", "values()|map('string')|join('/')"]
SUBSCRIPTS = ["0", "-1", "1", "'a'", "'name'", "true", "none", "99", "'upper'", "1.5", "[]"]
# A slice of a constant that has none is undefined, because jinja2 evaluates it while it compiles. That of a variable is an error.
SLICED = ["s", "u", "t", "numbers", "words", "people", "messages[1].content", "s.split()", "numbers|list", "range(n)",
          "(n, m, x)", "n", "table", "nothing", "missing", "range(9, n, -1)"]
SLICES = ["1:", ":2", "::-1", "-2:", "1:-1", "::2", "5:1:-2", ":'a'", "::0", ":", "-99:99", "n:m", "none:2", "::-3", "true:"]
PERCENTS = ["'%s' % {}", "'%5d|' % {}", "'%-6s|' % {}", "'%05.1f' % {}", "'%r' % {}", "'%x' % {}", "'%+d' % {}", "'%e' % {}",
            "'%g' % {}", "'%s and %s' % ({}, 1)", "'%c' % {}", "'%.2s' % {}", "'%%' % ({},)", "'%(a)s' % {}", "'%a' % {}",
            "'%#o' % {}", "'% d' % {}"]
BRACES = ["'{{}}'.format({})", "'{{:>8}}'.format({})", "'{{!r}}'.format({})", "'{{:05.1f}}'.format({})", "'{{:,}}'.format({})",
          "'{{0:^9}}|{{0}}'.format({})", "'{{:x}}'.format({})", "'{{a}}'.format(a={})", "'{{:e}}'.format({})",
          "'{{:.3}}'.format({})", "'{{:+.2f}}'.format({})", "'{{:%}}'.format({})", "'{{[0]}}'.format({})",
          "'{{:{{}}}}'.format({}, 6)", "'{{:_}}'.format({})", "'{{:g}}'.format({})", "'{{:08,.2f}}'.format({})"]

LOOP_BODIES = ["", "{{ loop.index }}", "{{ loop.first }}{{ loop.last }}", "{{ loop.revindex }}", "{{ loop.cycle('a', 'b') }}",
               "{{ loop.previtem is defined }}", "{{ loop.nextitem }}", "{% if loop.index > 2 %}{% break %}{% endif %}",
               "{% if loop.first %}{% continue %}{% endif %}", "{{ loop.changed(i) }}", "{{ loop.length }}", "{{ loop }}",
               "{% set ns.a = ns.a + 1 %}", "{% set z = loop.index0 %}{{ z }}"]
OPERATORS = ["+", "+", "-", "*", "/", "//", "%", "**", "~", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Grammar:
    """Draws parts of templates. `depth` bounds the nesting."""

    def __init__(self, generator):
        self.generator = generator

    def pick(self, options):
        return self.generator.choice(options)

    def chance(self, probability):
        return self.generator.random() < probability

    def atom(self):
        groups = [STRINGS, INTEGERS, FLOATS, BOOLS, LISTS, DICTS, OTHERS]
        return self.pick(self.generator.choices(groups, [8, 5, 3, 2, 5, 4, 1])[0])

    def filtered(self, depth):
        kind = self.pick(["string", "string", "number", "list", "list", "dict", "any"])
        atoms, filters = {"string": (STRINGS, STRING_FILTERS), "number": (INTEGERS + FLOATS, NUMBER_FILTERS),
                          "list": (LISTS, LIST_FILTERS), "dict": (DICTS, DICT_FILTERS),
                          "any": (STRINGS + LISTS + DICTS + INTEGERS + OTHERS,
                                  STRING_FILTERS + LIST_FILTERS + NUMBER_FILTERS)}[kind]
        operand = f"({self.expression(depth - 1)})" if depth > 0 and self.chance(0.3) else self.pick(atoms)
        text = f"{operand}|{self.pick(filters)}"
        return f"{text}|{self.pick(filters)}" if self.chance(0.2) else text

    def method(self, depth):
        kind = self.pick(["string", "string", "string", "list", "dict"])
        atoms, methods = {"string": (STRINGS, STRING_METHODS), "list": (LISTS, LIST_METHODS), "dict": (DICTS, DICT_METHODS)}[kind]
        operand = f"({self.expression(depth - 1)})" if depth > 0 and self.chance(0.2) else f"({self.pick(atoms)})"
        return f"{operand}.{self.pick(methods)}"

    def binary(self, depth):
        operator = self.pick(OPERATORS)
        if self.chance(0.7):  # operands that suit each other
            group = self.pick([STRINGS, INTEGERS, INTEGERS + FLOATS, LISTS])
            if operator == "~":
                group = STRINGS + INTEGERS + FLOATS + LISTS
            if operator in ("-", "/", "//", "%", "**"):
                group = INTEGERS + FLOATS
            return f"{self.pick(group)} {operator} {self.pick(group)}"
        return f"{self.operand(depth)} {operator} {self.operand(depth)}"

    def operand(self, depth):
        return f"({self.expression(depth - 1)})" if depth > 0 and self.chance(0.5) else self.atom()

    def expression(self, depth=2):
        draw = self.generator.random()
        if draw < 0.30:
            return self.filtered(depth)
        if draw < 0.48:
            return self.method(depth)
        if draw < 0.66:
            return self.binary(depth)
        if draw < 0.74:
            if self.chance(0.5):
                return f"{self.pick(SLICED)}[{self.pick(SLICES)}]"
            return f"{self.operand(depth)}[{self.pick(SUBSCRIPTS)}]"
        if draw < 0.82:
            return f"{self.operand(depth)} is {self.pick(TESTS)}"
        if draw < 0.87:
            return self.pick(PERCENTS).format(self.operand(depth))
        if draw < 0.91:
            return self.pick(BRACES).format(self.operand(depth))
        if draw < 0.95:
            return f"{self.operand(depth)} if {self.operand(depth)} else {self.operand(depth)}"
        if draw < 0.98:
            return f"[{self.operand(depth)}, {self.operand(depth)}]"
        return f"not {self.operand(depth)}"

    def space(self):
        return self.pick(["", " ", "\n", "\n  ", "  \n", "x", " \n\n y "])

    def tag(self, text):
        begin, end = self.pick(["{%", "{%", "{%-", "{%+"]), self.pick(["%}", "%}", "-%}", "+%}"])
        return f"{self.space()}{begin} {text} {end}{self.space()}"

    def output(self, depth=1):
        begin, end = self.pick(["{{", "{{", "{{-", "{{+"]), self.pick(["}}", "}}", "-}}"])
        return f"{begin} {self.expression(depth)} {end}"

    def body(self, depth):
        return "".join(self.statement(depth - 1) if depth > 0 and self.chance(0.5) else self.output() + self.space()
                       for _ in range(self.generator.randint(1, 2)))

    def loop(self, depth):
        target, source = self.pick([("i", self.pick(LISTS)), ("i", "messages"), ("k, v", "table.items()"), ("i", self.operand(1)),
                                    ("p", "people if p.age > 20"), ("c", "'abc'"), ("k, v", "table|dictsort"),
                                    ("i", "words|map('upper')")])
        inner = self.pick(LOOP_BODIES)
        otherwise = self.tag("else") + self.output() if self.chance(0.3) else ""
        return self.tag(f"for {target} in {source}") + inner + self.body(depth) + otherwise + self.tag("endfor")

    def statement(self, depth=2):
        draw = self.generator.random()
        if draw < 0.25:
            otherwise = self.tag(f"elif {self.expression(1)}") + self.body(depth) if self.chance(0.3) else ""
            otherwise += self.tag("else") + self.body(depth) if self.chance(0.5) else ""
            return self.tag(f"if {self.expression(1)}") + self.body(depth) + otherwise + self.tag("endif")
        if draw < 0.50:
            return self.loop(depth)
        if draw < 0.62:
            return self.tag(f"set {self.pick(['z', 'n', 'y'])} = {self.expression(1)}") + "{{ z }}{{ n }}"
        if draw < 0.68:
            begin = self.pick(["set z", "set z | upper", "set z | trim | replace(' ', '_')"])
            return self.tag(begin) + self.body(depth) + self.tag("endset") + "{{ z }}"
        if draw < 0.76:
            name = self.pick(["f", "g"])
            call = name + self.pick([f"({self.atom()})", f"(1, b={self.atom()})", "()", "(1, 2, 3)", "(q=1)"])
            extra = self.pick(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller is defined }}"])
            body = "{{ a }}{{ b }}" + extra + self.body(0)
            return self.tag(f"macro {name}(a, b={self.atom()})") + body + self.tag("endmacro") + f"{{{{ {call} }}}}"
        if draw < 0.82:
            name = self.pick(["upper", "trim", "indent(3)", "replace('a', 'b')", "length"])
            return self.tag(f"filter {name}") + self.body(depth) + self.tag("endfilter")
        if draw < 0.88:
            return self.tag(f"with z = {self.atom()}, w = z") + "{{ z }}{{ w }}" + self.body(depth) + self.tag("endwith")
        if draw < 0.94:
            return self.tag("generation") + self.body(depth) + self.tag("endgeneration")
        return self.pick(["{# note #}\n", "  {#- note -#}  ", "{% raw %}{{ no }}{% endraw %}",
                          "\n  {%- raw -%} {% x %} {%- endraw -%}\n"])

    def template(self):
        if self.chance(0.6):
            return "{{ " + self.expression(2) + " }}"
        start = "{% set ns = namespace(a=0) %}"
        return start + "".join(self.statement() for _ in range(self.generator.randint(1, 2))) + "{{ ns.a }}"
