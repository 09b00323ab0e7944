"""Makes the golden files that come from SentencePiece and Jinja2; README.md says where the others come from.

    pip install sentencepiece==0.2.3 protobuf tokenizers==0.23.3 jinja2==3.1.6
    python make_golden.py
"""

import gzip
import io
import json
import os
import random
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))


def write(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(HERE, name), "wb") as f:
        f.write(gzip.compress(text.encode(), 9, mtime=0))


def strings():
    with gzip.open(os.path.join(HERE, "strings.jsonl.gz"), "rt", encoding="utf-8") as f:
        return [json.loads(line)["text"] for line in f]


# --- SentencePiece ---------------------------------------------------------------------------------------------------

def sentencepiece_golden():
    import sentencepiece as spm
    from sentencepiece import sentencepiece_model_pb2

    texts = strings()
    rng = random.Random(7)
    # Generated text, so that the vocabulary has words of its own.
    words = [
        "".join(rng.choice(["ka", "re", "mo", "ti", "sun", "ver", "lo", "esk", "ing", "er"]) for _ in range(rng.randint(1, 4)))
        for _ in range(400)
    ]
    lines = [" ".join(rng.choice(words) for _ in range(12)) for _ in range(800)]
    lines += [t.replace("\n", " ") for t in texts if t.strip()]
    train = "\n".join(lines)

    for name, kind, extra in [
        ("spm", "bpe", dict(normalization_rule_name="identity", remove_extra_whitespaces=False, byte_fallback=True,
                            user_defined_symbols="<think>,</think>")),
        ("unigram", "unigram", dict(normalization_rule_name="nmt_nfkc", byte_fallback=False, pad_id=0, eos_id=1, unk_id=2,
                                    bos_id=-1, user_defined_symbols="<extra_0>")),
        ("unigram_bytes", "unigram", dict(normalization_rule_name="nmt_nfkc", byte_fallback=True)),
    ]:
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(sentence_iterator=iter(train.split("\n")), model_writer=model, model_type=kind,
                                       vocab_size=1400, character_coverage=0.98, hard_vocab_limit=False,
                                       num_threads=1, **extra)
        proto = sentencepiece_model_pb2.ModelProto()
        proto.ParseFromString(model.getvalue())
        if kind == "bpe":
            # Steps on the way to longer pieces that the result must not have.
            long_pieces = [p for p in proto.pieces if p.type == p.NORMAL and len(p.piece) > 1]
            for piece in long_pieces[::9]:
                piece.type = piece.UNUSED
        sp = spm.SentencePieceProcessor(model_proto=proto.SerializeToString())
        n = sp.get_piece_size()
        types = [
            2 if sp.is_unknown(i) else 6 if sp.is_byte(i) else 5 if sp.is_unused(i) else 3 if sp.is_control(i) else 1
            for i in range(n)
        ]
        for piece in extra.get("user_defined_symbols", "").split(","):
            if piece:
                types[sp.piece_to_id(piece)] = 4
        # SentencePiece puts no space prefix after a user-defined symbol, readers of GGUF files do: texts without one.
        usable = [
            i for i, t in enumerate(texts)
            if "\0" not in t and not any(m in t for m in ("<think>", "</think>", "<extra_0>"))
        ][:: 3 if kind == "bpe" else 6]
        write(name + ".json.gz", {
            "tokens": [sp.id_to_piece(i) for i in range(n)],
            "scores": [sp.get_score(i) for i in range(n)],
            "token_types": types,
            # Line number in strings.jsonl, ids.
            "cases": [[i, sp.encode(texts[i])] for i in usable],
        })
        if kind == "unigram" and extra["byte_fallback"]:
            # What the normaliser does with every single character, between two letters.
            odd = {}
            for cp in list(range(1, 0xD800)) + list(range(0xE000, 0x20000)):
                out = sp.normalize("a" + chr(cp) + "b")
                odd[cp] = out
            write("nmt_nfkc.json.gz", odd_ranges(odd))


def odd_ranges(odd):
    """Only the characters whose result Unicode's NFKC does not explain."""
    import unicodedata

    def plain(cp):
        text = " ".join(unicodedata.normalize("NFKC", "a" + chr(cp) + "b").split(" "))
        while "  " in text:
            text = text.replace("  ", " ")
        return "▁" + text.strip(" ").replace(" ", "▁")

    return [[cp, out] for cp, out in odd.items() if out != plain(cp)]


# --- Split patterns --------------------------------------------------------------------------------------------------

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
WORD = r"[^\r\n\p{L}\p{N}]?[" + UPPER + "]*[" + LOWER + "]+{0}|[^\\r\\n\\p{{L}}\\p{{N}}]?[".replace("{{", "{").replace("}}", "}") + UPPER + "]+[" + LOWER + "]*{0}"
MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
O200K = WORD.replace("{0}", CONTRACTIONS + "?") + r"|\p{N}{1,3}" + MARKS + TAIL
HAN = WORD.replace("{0}", CONTRACTIONS + "?").replace(UPPER, UPPER + r"&&[^\p{Han}]").replace(LOWER, LOWER + r"&&[^\p{Han}]")

# As published in tokenizer.json files and tokenizer code, in the order in which they cut.
SPLITS = {
    "gpt-2": [GPT2],
    "smollm": [r"\p{N}", GPT2],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"],
    "qwen2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + TAIL],
    "llama-bpe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    "gpt-4o": [O200K],
    "tekken": [WORD.replace("{0}", "") + r"|\p{N}" + MARKS + TAIL],
    "kimi-k2": [r"[\p{Han}]+|" + HAN + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + TAIL],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", O200K],
    "deepseek-v3": [
        r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*" + TAIL,
    ],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "seed-coder": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+" + TAIL],
    "exaone-moe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "bloom": [r" ?[^(\s|.,!?…。，、।۔،)]+"],
    "gemma4": [r"[^\n]+|[\n]+"],
}


def splits_golden():
    """For each pre-tokenizer, the number of pieces of all strings and an FNV-1a hash over them, 0xff after each."""
    from tokenizers import Regex, pre_tokenizers

    texts = strings()
    out = {}
    for name, patterns in SPLITS.items():
        cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])
        hash_, n = 0xCBF29CE484222325, 0
        for text in texts:
            pieces = [p for p, _ in cut.pre_tokenize_str(text)]
            n += len(pieces)
            for byte in b"".join(p.encode() + b"\xff" for p in pieces):
                hash_ = ((hash_ ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
        out[name] = [n, f"{hash_:016x}"]
    with open(os.path.join(HERE, "splits.json"), "w") as f:
        json.dump(out, f, indent=1)


# --- Jinja2 ----------------------------------------------------------------------------------------------------------

def environment():
    """As transformers sets it up for chat templates."""
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            lineno = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("_body", []), [], [], body).set_lineno(lineno)

        def _body(self, caller):
            return caller()

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


VALUES = {
    "s": "Hello, World",
    "blank": "  \t padded text \n ",
    "lines": "one\ntwo\r\nthree\n\nfive",
    "quote": "it's \"quoted\" \\ back\tslash\u0007 é 東京 🙂 </s>&<b>",
    "n": 42, "neg": -7, "big": 12345678901234567890, "f": 0.1, "whole": 3.0, "tiny": 1e-7, "huge": 1e22, "negzero": -0.0,
    "yes": True, "no": False, "nothing": None,
    "l": [3, 1, 2], "names": ["b", "a", "C"], "empty": [], "nested": [[1, [2.5, "x"]], {"k": None, "t": True}],
    "d": {"b": 1, "a": "two", "c": [1, 2], "items": "shadow", "get": 3},
    "emptyd": {},
    "users": [{"name": "Ann", "age": 30, "ok": True}, {"name": "Bob", "age": 25, "ok": False}, {"name": "Cid", "age": 41, "ok": True}],
}

EXPRESSIONS = """
s.upper() ~ s.lower()
s.title()
"they're bill's friends from the UK".title()
"straße ÉCOLE".title()
s.capitalize()
s.swapcase()
blank.strip() ~ "|" ~ blank.lstrip() ~ "|" ~ blank.rstrip() ~ "|"
"xxhixx".strip("x") ~ "xyhiyx".lstrip("yx") ~ "xyhiyx".rstrip("xy")
"a\\x1cb\\x1c".strip()
s.split(", ")
"a b  c ".split()
"a b  c ".split(" ")
"a,b,c".split(",", 1)
"a b  c d".split(None, 2)
"a,b,c".split(",")[-1]
"a,b,c".rsplit(",", 1)
" a b  c d ".rsplit(None, 2)
"a,b,c".split(sep=",", maxsplit=1)
"</think>".join(["a", "b"])
"a</think>b</think>c".split("</think>")[-1].lstrip("\\n")
"a</think>b".split("</think>")[0].rstrip("\\n").split("<think>")[-1]
lines.splitlines()
lines.splitlines(True)
lines.splitlines(keepends=true)
s.startswith("Hell") ~ s.startswith(("x", "Hello")) ~ s.endswith("ld") ~ s.endswith(("x",))
s.replace("l", "L") ~ s.replace("l", "L", 1) ~ s.replace("", "-")
s.find("o") ~ s.find("zz") ~ s.rfind("o") ~ s.index("W") ~ s.count("l") ~ s.find("o", 5) ~ s.rfind("o", 0, 5)
"東京都".find("都")
s.partition(", ")
s.rpartition("o")
s.partition("zz")
s.rpartition("zz")
s.removeprefix("Hello").removesuffix("World")
"7".zfill(3) ~ "-7".zfill(4) ~ "abc".zfill(2)
"a".ljust(4, ".") ~ "a".rjust(4) ~ "a".center(4, "*") ~ "ab".center(5, "*") ~ "abc".center(6, "-")
s.isupper() ~ s.islower() ~ "12".isdigit() ~ "1a".isalnum() ~ "ab".isalpha() ~ " ".isspace() ~ "".isdigit()
"{} and {}".format(1, "x")
"{0}-{name}".format(1, name="y")
"%s is %d" % ("x", 3)
"%s" % n
"%.2f" % f
"%05d|%-5s|%5s" % (n, "ab", "cd")
"Hello" ~ n ~ f ~ yes ~ nothing
"a" + "b"
"ab" * 3
[0] * 3
l + [4]
1 / 2
7 // 2 ~ "|" ~ -7 // 2 ~ "|" ~ 7 % 3 ~ "|" ~ -7 % 3 ~ "|" ~ 2 ** 10
4 / 2
1e3
10 ** 20
n + f
s[0] ~ s[-1] ~ s[1:4] ~ s[:-1] ~ s[::2] ~ s[::-1]
l[::-1]
l[1:] ~ l[:1] ~ l[-1:] ~ l[5:]
names[-1]
users[::-1] | map(attribute="name") | list
users[0].name ~ users[0]["name"] ~ users[-1].name
users[7] is defined
users[0].zzz is defined
zzz is defined
zzz
zzz is undefined and zzz is not defined
nothing is none and nothing is not defined or nothing is none
s is string ~ n is string ~ s is number ~ n is number ~ f is float ~ n is integer ~ yes is boolean ~ n is boolean
d is mapping ~ l is mapping ~ l is sequence ~ s is sequence ~ d is sequence ~ n is sequence
l is iterable ~ s is iterable ~ d is iterable ~ n is iterable ~ nothing is iterable
yes is true ~ no is false ~ yes is false ~ n is true
n is odd ~ n is even ~ n is divisibleby(7)
n is eq(42) ~ n is sameas(42) ~ n is gt 3 ~ n is in([1, 42])
"ell" in s ~ "zz" in s ~ 3 in l ~ 9 not in l ~ "a" in d ~ "two" in d
not no and yes or nothing
no or "fallback"
nothing or ""
s if yes else "no"
s if no
(s if no) is defined
d.b ~ d["a"] ~ d.get("a") ~ d.get("zz") ~ d.get("zz", "dflt")
d.items() | list
d.keys() | list
d.values() | list
d | items | list
d | dictsort
d | length ~ l | length ~ s | length ~ emptyd | length
d | list
d
nested
users
quote
[quote]
[s, n, neg, big, f, whole, tiny, huge, negzero, yes, no, nothing]
f ~ "|" ~ whole ~ "|" ~ tiny ~ "|" ~ negzero
{"a": 1, "b": [true, none]}
(1, 2)
(1,)
()
[1, (2, "x")]
d | tojson
nested | tojson
users | tojson(indent=2)
users | tojson(indent=4)
users[0] | tojson(separators=(",", ":"))
d | tojson(sort_keys=True, indent=2)
emptyd | tojson(indent=2) ~ empty | tojson(indent=2)
quote | tojson
quote | tojson(ensure_ascii=True)
quote | tojson(ensure_ascii=False)
[s, n, neg, big, f, whole, tiny, huge, negzero, yes, no, nothing] | tojson
nothing | tojson ~ yes | tojson ~ n | tojson
{"x": {"y": [1, {"z": 2}]}} | tojson(indent=1)
{1: "a", none: "b", true: "c"} | tojson
(1, 2) | tojson
l | join(", ") ~ names | join ~ users | join(",", attribute="name") ~ [1, none, true] | join("-")
l | sort ~ names | sort ~ names | sort(case_sensitive=true) ~ l | sort(reverse=true)
users | sort(attribute="age") | map(attribute="name") | join(",")
users | selectattr("ok") | map(attribute="name") | list
users | selectattr("age", "gt", 26) | map(attribute="name") | list
users | selectattr("name", "equalto", "Bob") | list | length
users | rejectattr("ok") | map(attribute="name") | join
users | rejectattr("name", "in", ["Ann", "Bob"]) | map(attribute="name") | join
users | map(attribute="zzz", default="none") | list
l | map("string") | list
names | map("upper") | join(" ")
l | select("odd") | list ~ l | reject("odd") | list
l | first ~ l | last ~ l | min ~ l | max ~ l | sum
empty | first
users | sum(attribute="age")
names | unique | list
l | reverse | list ~ s | reverse
blank | trim ~ "|" ~ "xxaxx" | trim("x")
s | upper ~ s | lower ~ s | title ~ s | capitalize
s | replace("l", "L") ~ s | replace("l", "L", 1)
zzz | default("dflt") ~ "" | default("dflt", true) ~ nothing | default("x") ~ nothing | default("x", true) ~ zzz | d("y")
users[0].zzz | default("dflt")
n | string ~ d | string ~ nothing | string ~ yes | string
n | int ~ "12" | int ~ "x" | int ~ "3.7" | int ~ 3.9 | int ~ "ff" | int(base=16) ~ "x" | int(default=5)
n | float ~ "1.5" | float ~ "x" | float
f | round ~ 2.567 | round(2) ~ 2.5 | round ~ 2.1 | round(method="ceil")
neg | abs
"a\\nb\\n\\nc" | indent ~ "a\\nb" | indent(2, true) ~ "a\\n\\nb" | indent(width=3, blank=true)
l | batch(2) | list
l | slice(2) | list
"a b c" | wordcount
s | list
"abc" | list | join("-")
range(3) | list ~ range(1, 7, 2) | list ~ range(3, 0, -1) | list
dict(a=1, b=2)
dict(a=1).items() | list
namespace(x=1).x
users | groupby("ok") | list | length
s | length > 5 and l | length == 3
1 < 2 < 3
1 == 1.0
"a" < "b"
"1" == 1
none == none
l == [3, 1, 2]
[1, 2] < [1, 3]
"<b>&" | e
"<b>" | safe
d["zzz"] is defined
(d.zzz or {}).get("q", "r")
l.index(2) ~ l.count(1) ~ names.index("a")
"abc"[1]
"abc"[10:]
-n ~ +n ~ -f
n | string + "x"
"x" ~ (1, 2)
true ~ True ~ none ~ None
"line1\\nline2\\ttab \\"q\\" \\'s\\' \\\\ end"
'single \\u00e9 \\x41'
""
"{{ not a tag }}"
"%d%%" % 50
s is not none and s is defined
s is lower ~ "abc" is lower ~ "ABC" is upper
"a-b_c".replace("-", " ").replace("_", " ").split()
"x: {y}".format(y=3)
"\\u003c|im_start|\\u003e"
l | string | length
"".join(names) ~ ",".join(["x"]) ~ "-".join("abc")
users | map(attribute="age") | map("float") | sum
users[0] | items | map("first") | join(",")
users[0].items() | map(attribute=0) | join(",")
{"a": 1}.a
{"a": {"b": [10, 20]}}.a.b[1]
("x", "y")[1]
l[-4:]
not zzz
zzz == none
zzz ~ "x"
[zzz]
zzz | length
zzz | list
zzz is none
loop is defined
"é".upper() ~ "ß".upper() ~ "İ".lower() | length
"abc" > "ab" and not "b" < "a"
n in [42, 43] and n not in (1, 2)
"tool" if users and users[0].ok is true else "plain"
"ab\\ncd".splitlines() | map("trim") | join("/")
1_000
0x1f ~ 0b11 ~ 0o17
n // 0.5 ~ n % 5.5
1.0 ~ 100000000000000000.0 ~ 1.5e300
"a" "b"
"%s" | format("z")
"%s-%s" | format(1, none)
blank | replace(" ", "")
s | center(20) | length
"a" is in ["a", "b"]
"x" is filter
"upper" is filter
""" .strip("\n").split("\n")

# These fail in Python; ours has to fail, too.
FAILING = """
zzz.attr
users[9].name
1 + "a"
"a" + 1
none + "x"
1 / 0
l.append(4)
d.update({"x": 1})
raise_exception("no " ~ s)
s.nomethod()
zzz()
s | nofilter
s is notest
"x".join([1, 2])
"abc".index("z")
"a".split("")
[1, 2].index(9)
d | tojson(bad=1)
zzz | tojson
5 in n
"%d" % "x"
none.x.y
""" .strip("\n").split("\n")

TEMPLATES = {
    "for with loop variables": """
{% for u in users %}
  {%- if loop.first %}[{% endif %}
{{ loop.index }}/{{ loop.length }}:{{ u.name }}{{ "" if loop.last else "," }}{{ loop.revindex0 }}{{ loop.cycle("x", "y") }}
  {%- if loop.last %}]{% endif %}
{% else %}
none
{% endfor %}
{{ loop is defined }}""",
    "previtem and nextitem": "{% for x in l %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "changed": "{% for x in [1, 1, 2] %}{{ loop.changed(x) }} {% endfor %}",
    "break and continue": "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "filtered loop": "{% for u in users if u.ok %}{{ loop.index }}{{ u.name }} {% endfor %}",
    "loop scope": "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}",
    "namespace": """{% set ns = namespace(found=false, n=0, text='') %}
{% for u in users %}
{% if u.ok and not ns.found %}{% set ns.found = true %}{% endif %}
{% set ns.n = ns.n + u.age %}
{% set ns.text = ns.text ~ u.name %}
{% endfor %}
{{ ns.found }} {{ ns.n }} {{ ns.text }}""",
    "set block": "{% set block %}a {{ n }}\nb{% endset %}[{{ block }}]{{ block | length }}",
    "set block filter": "{% set block | upper %}a{{ s }}{% endset %}{{ block }}",
    "tuple set": "{% set a, b = 1, 'x' %}{{ a }}{{ b }}",
    "tuple loop": "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "nested tuple loop": "{% for k, (a, b) in [('x', (1, 2))] %}{{ k }}{{ a }}{{ b }}{% endfor %}",
    "macro": """{% macro field(name, value='none', sep=': ') %}
{{ name }}{{ sep }}{{ value }}
{% endmacro %}
{{ field('a', 1) }}{{ field('b') }}{{ field(name='c', sep='=') }}""",
    "macro sees globals": "{% macro m() %}{{ n }}{{ bos_token }}{% endmacro %}{{ m() }}",
    "recursive macro": "{% macro tree(x) %}{% if x is iterable and x is not string and x is not mapping %}({% for i in x %}{{ tree(i) }}{% endfor %}){% else %}{{ x }} {% endif %}{% endmacro %}{{ tree(nested) }}",
    "call block": "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}inner {{ n }}{% endcall %}",
    "filter block": "{% filter upper %}abc {{ s }}{% endfilter %}",
    "recursive loop": "{% for x in [[1, [2]], 3] recursive %}{{ loop.depth }}{% if x is iterable %}[{{ loop(x) }}]{% else %}{{ x }}{% endif %}{% endfor %}",
    "with": "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "comments": "a{# one #}b {#- two -#} c\n{# three #}\nd",
    "raw": "{% raw %}{{ x }} {% y %}{% endraw %}",
    "white space control": "  {%- if yes -%}  a  {%- endif -%}  b\n  {% if yes %}\n  c\n  {% endif %}\n  d {{- n -}} e\n",
    "plus keeps": "  {%+ if yes %}x{% endif +%}\ny",
    "trim_blocks": "{% if yes %}\nline\n{% endif %}\n\nlast\n",
    "lstrip_blocks": "a\n   {% set q = 1 %}\nb\n\t{# c #}\nd   {% if yes %}e{% endif %}",
    "trailing newline": "x\n",
    "trailing newlines": "x\n\n",
    "crlf": "a\r\n{% if yes %}\r\nb{% endif %}",
    "elif": "{% if no %}a{% elif n == 42 %}b{% else %}c{% endif %}",
    "inline if chain": "{{ 'a' if no else 'b' if nothing else 'c' }}",
    "generation": "{% for u in users %}\n{% generation %}\n{{ u.name }}\n{%- endgeneration %}\n;{% endfor %}",
    "set in if": "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}",
    "do nothing with undefined": "{{ zzz }}{% if zzz %}a{% endif %}{% for q in zzz %}b{% endfor %}",
    "string concat in loop": "{%- set out = namespace(t='') -%}{%- for c in s -%}{%- set out.t = c + out.t -%}{%- endfor -%}{{ out.t }}",
    "json in text": "{{ '{\"name\": \"' + s + '\", \"arguments\": ' }}{{ d | tojson }}{{ '}' }}",
    "slices of messages": "{% set rest = users[1:] %}{% for u in rest[::-1] %}{{ u.name }}{% endfor %}{{ users[1:][0].name }}",
    "index arithmetic": "{% for u in users %}{% set i = (users | length - 1) - loop.index0 %}{{ users[i].name }}{% endfor %}",
    "is not tests": "{% if n is not none and n is not string and zzz is not defined %}ok{% endif %}",
    "dict building": "{% set m = {'role': s, 'n': n} %}{{ m.role }}{{ m['n'] }}{{ m | tojson }}",
    "dict of dict update": "{% set m = dict(d, z=9) %}{{ m | tojson }}",
    "include with nothing": "{% set x %}{% endset %}[{{ x }}]",
    "unicode names": "{{ '▁' ~ '<｜User｜>' }}",
    "nested quotes": "{{ \"a 'b' \\\"c\\\"\" }}{{ 'd \"e\" \\'f\\'' }}",
    "loop over string": "{% for c in 'añ🙂' %}{{ c }}.{% endfor %}",
    "loop over dict": "{% for k in d %}{{ k }}{% endfor %}",
    "chained filters": "{{ users | selectattr('ok') | map(attribute='name') | map('lower') | join('/') | replace('a', 'A') }}",
    "attribute after filter": "{{ (users | first).name }}{{ (users | selectattr('name', 'equalto', 'Bob') | list)[0].age }}",
    "raise in branch not taken": "{% if no %}{{ raise_exception('x') }}{% endif %}ok",
}

# Chat templates in the manner of known families, in our words.
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather", "description": "Weather at a place.\nIn °C.",
        "parameters": {
            "type": "object",
            "properties": {
                "place": {"type": "string", "description": "City & country"},
                "days": {"type": "array", "items": {"type": "integer"}, "minItems": 1},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            },
            "required": ["place"],
        },
    },
}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"]}}}}}

CHATS = [
    dict(messages=[{"role": "user", "content": "Hi"}]),
    dict(messages=[{"role": "system", "content": "  Be brief. \n"}, {"role": "user", "content": " Hi\n"}, {"role": "assistant", "content": "Yo"}, {"role": "user", "content": "東京?"}]),
    dict(messages=[{"role": "user", "content": "Sum"}, {"role": "assistant", "content": "<think>\nhm\n</think>\n\n2"}, {"role": "user", "content": "why"}], add_generation_prompt=False),
    dict(messages=[{"role": "user", "content": "Sum"}, {"role": "assistant", "reasoning_content": "first\n", "content": "2"}, {"role": "user", "content": "why"}], enable_thinking=False),
    dict(messages=[{"role": "user", "content": "Weather?"},
                   {"role": "assistant", "content": "", "tool_calls": [{"id": "a1", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Oslo & \"Bergen\"", "days": [1, 2.5], "x": None}}}]},
                   {"role": "tool", "tool_call_id": "a1", "name": "get_weather", "content": "{\"t\": -3}"},
                   {"role": "assistant", "content": "Cold."}], tools=[WEATHER]),
    dict(messages=[{"role": "system", "content": "S"}, {"role": "user", "content": "Both"},
                   {"role": "assistant", "content": None, "tool_calls": [
                       {"id": "b1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 1e16}}},
                       {"id": "b2", "type": "function", "function": {"name": "add", "arguments": {"a": -0.0, "b": True}}}]},
                   {"role": "tool", "tool_call_id": "b1", "name": "add", "content": "3"}, {"role": "tool", "tool_call_id": "b2", "name": "add", "content": "4"}],
         tools=[WEATHER, ADD]),
    dict(messages=[{"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": " this?"}]}]),
    dict(messages=[{"role": "system", "content": [{"type": "text", "text": "Sys"}]}, {"role": "user", "content": [{"type": "text", "text": "A"}]}, {"role": "assistant", "content": [{"type": "text", "text": "B"}]}], add_generation_prompt=False),
    dict(messages=[{"role": "assistant", "content": "first"}, {"role": "user", "content": "x"}]),
    dict(messages=[]),
]

FAMILIES = {
    "header style": r"""{{- bos_token }}
{%- if custom_tools is defined %}{% set tools = custom_tools %}{% endif %}
{%- if not date_string is defined %}{% set date_string = "26 Jul 2024" %}{% endif %}
{%- if messages and messages[0]['role'] == 'system' and messages[0]['content'] is string %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none %}
    {{- "You may call functions:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message + "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {%- if message.content is string %}{{- message['content'] | trim }}
        {%- else %}{% for c in message.content %}{{ '<|image|>' if c.type == 'image' else c.text | trim }}{% endfor %}{% endif %}
        {{- '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls | length == 1 %}{{- raise_exception("Only one call at a time!") }}{%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "' + call.name + '", ' }}
        {{- '"parameters": ' }}{{- call.arguments | tojson }}{{- "}<|eot_id|>" }}
    {%- elif message.role in ["tool", "ipython"] %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}{{- message.content | tojson }}
        {%- else %}{{- message.content }}{%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""",
    "reasoning chatml": r"""{%- macro text_of(content) %}
    {%- if content is string %}{{- content }}
    {%- elif content is iterable and content is not mapping %}
        {%- for part in content %}{%- if 'text' in part %}{{- part.text }}{%- elif part.type == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}{%- endif %}{%- endfor %}
    {%- elif content is none or content is undefined %}{{- '' }}
    {%- else %}{{- raise_exception('Unexpected content: ' ~ content) }}
    {%- endif %}
{%- endmacro %}
{%- if not messages %}{{- raise_exception('No messages provided.') }}{%- endif %}
{%- if tools and tools is iterable and tools is not mapping %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0].role == 'system' %}{{- text_of(messages[0].content) | trim + '\n\n' }}{%- endif %}
    {{- "# Tools\n\n<tools>" }}
    {%- for tool in tools %}{{- "\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\n</tools><|im_end|>\n" }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + text_of(messages[0].content) | trim + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step=true, last_query=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step and message.role == "user" and not (text_of(message.content).startswith('<tool_response>') and text_of(message.content).endswith('</tool_response>')) %}
        {%- set ns.multi_step = false %}
        {%- set ns.last_query = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = text_of(message.content) | trim %}
    {%- if message.role == "system" %}
        {%- if not loop.first %}{{- raise_exception('System message must be first.') }}{%- endif %}
    {%- elif message.role == "user" %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {%- if loop.index0 > ns.last_query or (preserve_thinking is defined and preserve_thinking is true) %}
            {{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning.strip('\n') + '\n</think>\n\n' + content }}
        {%- else %}
            {{- '<|im_start|>' + message.role + '\n' + content }}
        {%- endif %}
        {%- if message.tool_calls and message.tool_calls is iterable and message.tool_calls is not mapping %}
            {%- for tool_call in message.tool_calls %}
                {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
                {{- ('\n\n' if loop.first and content else '\n' if not loop.first else '') + '<tool_call>\n<function=' + tool_call.name + '>\n' }}
                {%- if tool_call.arguments is defined %}
                    {%- for name, value in tool_call.arguments|items %}
                        {{- '<parameter=' + name + '>\n' }}
                        {%- set value = value | tojson | safe if value is mapping or (value is sequence and value is not string) else value | string %}
                        {{- value }}
                        {{- '\n</parameter>\n' }}
                    {%- endfor %}
                {%- endif %}
                {{- '</function>\n</tool_call>' }}
            {%- endfor %}
        {%- endif %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if loop.previtem and loop.previtem.role != "tool" %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<tool_response>\n' }}{{- content }}{{- '\n</tool_response>' }}
        {%- if not loop.last and loop.nextitem.role != "tool" %}{{- '<|im_end|>\n' }}
        {%- elif loop.last %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}{{- raise_exception('Unexpected role ' + message.role) }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}{%- else %}{{- '<think>\n' }}{%- endif %}
{%- endif %}
""",
    "fullwidth bars": r"""{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{ '<｜User｜>' + message['content'] }}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}{%- set ns.is_tool = false -%}{%- for tool in message['tool_calls'] %}{%- if not ns.is_first %}{%- if message['content'] is none %}{{ '<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + tool['function']['name'] + '\n' + '```json' + '\n' + tool['function']['arguments'] | tojson + '\n' + '```' + '<｜tool▁call▁end｜>' }}{%- else %}{{ '<｜Assistant｜>' + message['content'] + '<｜tool▁calls▁begin｜>' + tool['function']['name'] + tool['function']['arguments'] | tojson }}{%- endif %}{%- set ns.is_first = true -%}{%- else %}{{ '\n' + '<｜tool▁call▁begin｜>' + tool['function']['name'] + '<｜tool▁call▁end｜>' }}{%- endif %}{%- endfor %}{{ '<｜tool▁calls▁end｜><｜end▁of▁sentence｜>' }}{%- endif %}{%- if message['role'] == 'assistant' and (message['tool_calls'] is not defined or message['tool_calls'] is none) %}{%- if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' + message['content'] + '<｜end▁of▁sentence｜>' }}{%- set ns.is_tool = false -%}{%- else %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}{{ '<｜Assistant｜>' + content + '<｜end▁of▁sentence｜>' }}{%- endif %}{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{%- if ns.is_output_first %}{{ '<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>' }}{%- set ns.is_output_first = false %}{%- else %}{{ '\n<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>' }}{%- endif %}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{ '<｜tool▁outputs▁end｜>' }}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{ '<｜Assistant｜>' }}{% endif %}""",
    "turn style": r"""{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}{%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}{%- set first_user_prefix = messages[0]['content'][0]['text'] + '\n\n' -%}{%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}{%- set role = "model" -%}{%- else -%}{%- set role = message['role'] -%}{%- endif -%}
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}{{ message['content'] | trim }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}{{ '<start_of_image>' }}{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}
        {%- endfor -%}
    {%- else -%}{{ raise_exception("Invalid content type") }}{%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{'<start_of_turn>model\n'}}{%- endif -%}
""",
    "instruction brackets": r"""{%- if messages and messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}{%- set tools = none %}{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace(index=0) %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}{{- raise_exception("After the optional system message, roles must alternate") }}{%- endif %}
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
                    {%- if val is string %}{{- '"' + key + '": "' + val + '"' }}{%- else %}{{- '"' + key + '": ' + val|tojson }}{%- endif %}
                    {%- if not loop.last %}{{- ", " }}{%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" }}{%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}{{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}{{- "[INST] " ~ message["content"] ~ "[/INST]" }}{%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {%- if not tool_call.id is defined or tool_call.id|length != 2 %}{{- raise_exception("Tool call IDs should have length 2!") }}{%- endif %}
            {{- ', "id": "' + tool_call.id + '"}' }}
            {%- if not loop.last %}{{- ", " }}{%- else %}{{- "]" + eos_token }}{%- endif %}
        {%- endfor %}
    {%- elif message["role"] == "assistant" %}{{- " " ~ message["content"] ~ eos_token }}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}{%- set content = message.content.content %}{%- else %}{%- set content = message.content %}{%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "' + message.tool_call_id + '"}[/TOOL_RESULTS]' }}
    {%- else %}{{- raise_exception("Only user and assistant roles are supported!") }}
    {%- endif %}
{%- endfor %}
""",
    "channel style": r"""{%- macro type_of(spec, required) -%}
    {%- if spec.type == "array" -%}
        {%- if spec['items'] -%}{{- type_of(spec['items'], required) + "[]" }}{%- else -%}any[]{%- endif -%}
    {%- elif spec.type is defined and spec.type is iterable and spec.type is not string and spec.type is not mapping and spec.type[0] is defined -%}
        {{- spec.type | join(" | ") }}
    {%- elif spec.type == "string" -%}
        {%- if spec.enum -%}{{ '"' + spec.enum|join('" | "') + '"' }}{%- else -%}string{%- endif %}
    {%- elif spec.type == "number" or spec.type == "integer" -%}number
    {%- elif spec.type == "object" -%}
        {%- if spec.properties -%}
            {{- "{\n" }}
            {%- for name, prop in spec.properties.items() -%}
                {{- name -}}{%- if name not in (spec.required or []) -%}?{%- endif -%}{{- ": " }}{{ type_of(prop, spec.required or []) }}
                {%- if not loop.last %}{{-", " }}{%- endif -%}
            {%- endfor -%}
            {{- "}" }}
        {%- else -%}object{%- endif -%}
    {%- else -%}any{%- endif -%}
{%- endmacro -%}
{{- "<|start|>system<|message|>Reasoning: " + (reasoning_effort if reasoning_effort is defined else "medium") + "\n\n# Valid channels: analysis, commentary, final.<|end|>" }}
{%- if tools -%}
    {{- "<|start|>developer<|message|># Tools\n\nnamespace functions {\n\n" }}
    {%- for tool in tools %}
        {%- set tool = tool.function %}
        {%- if tool.description %}{{- "// " + tool.description.replace('\n', '\n// ') + "\n" }}{%- endif %}
        {{- "type "+ tool.name + " = " }}
        {%- if tool.parameters and tool.parameters.properties %}
            {{- "(_: {\n" }}
            {%- for param_name, param_spec in tool.parameters.properties.items() %}
                {%- if param_spec.description %}{{- "// " + param_spec.description + "\n" }}{%- endif %}
                {{- param_name }}
                {%- if param_name not in (tool.parameters.required or []) %}{{- "?" }}{%- endif %}
                {{- ": " }}{{- type_of(param_spec, tool.parameters.required or []) }}
                {%- if param_spec.default is defined %}
                    {%- if param_spec.enum %}{{- ", // default: " + param_spec.default }}{%- else %}{{- ", // default: " + param_spec.default|tojson }}{%- endif %}
                {%- endif -%}
                {%- if not loop.last %}{{- ",\n" }}{%- else %}{{- ",\n" }}{%- endif -%}
            {%- endfor %}
            {{- "}) => any;\n\n" }}
        {%- else -%}{{- "() => any;\n\n" }}{%- endif -%}
    {%- endfor %}
    {{- "} // namespace functions<|end|>" }}
{%- endif -%}
{%- set last_tool_call = namespace(name=none) %}
{%- for message in messages -%}
    {%- if message.role == 'assistant' -%}
        {%- if "content" in message and message.content is string and "<|channel|>" in message.content %}{{- raise_exception("channel tags in content") }}{%- endif %}
        {%- if message.tool_calls %}
            {%- set tool_call = message.tool_calls[0].function %}
            {{- "<|start|>assistant to=functions." + tool_call.name + "<|channel|>commentary json<|message|>" + tool_call.arguments|tojson + "<|call|>" }}
            {%- set last_tool_call.name = tool_call.name %}
        {%- elif loop.last and not add_generation_prompt %}
            {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|return|>" }}
        {%- else %}
            {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|end|>" }}
            {%- set last_tool_call.name = none %}
        {%- endif %}
    {%- elif message.role == 'tool' -%}
        {%- if last_tool_call.name is none %}{{- raise_exception("Message has tool role, but there was no previous assistant message with a tool call!") }}{%- endif %}
        {{- "<|start|>functions." + last_tool_call.name + " to=assistant<|channel|>commentary<|message|>" + message.content|tojson + "<|end|>" }}
    {%- elif message.role == 'user' -%}
        {{- "<|start|>user<|message|>" ~ message.content ~ "<|end|>" }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}
""",
    "observation style": r"""[gMASK]<sop>
{%- if tools -%}
<|system|>
# Tools
<tools>
{% for tool in tools %}
{{ tool | tojson(ensure_ascii=False) }}
{% endfor %}
</tools>{%- endif -%}
{%- macro visible_text(content) -%}
    {%- if content is string -%}{{- content }}
    {%- elif content is iterable and content is not mapping -%}
        {%- for item in content -%}{%- if item is mapping and item.type == 'text' -%}{{- item.text }}{%- elif item is string -%}{{- item }}{%- endif -%}{%- endfor -%}
    {%- else -%}{{- content }}{%- endif -%}
{%- endmacro -%}
{%- set ns = namespace(last_user_index=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{% set ns.last_user_index = loop.index0 -%}{%- endif %}{%- endfor %}
{% for m in messages %}
{%- if m.role == 'user' -%}<|user|>
{{ visible_text(m.content) }}
{{- '/nothink' if (enable_thinking is defined and not enable_thinking and not visible_text(m.content).endswith("/nothink")) else '' -}}
{%- elif m.role == 'assistant' -%}
<|assistant|>
{%- set reasoning_content = '' %}
{%- set content = visible_text(m.content) %}
{%- if m.reasoning_content is string %}{%- set reasoning_content = m.reasoning_content %}
{%- elif '</think>' in content %}
{%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
{%- set content = content.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{%- if loop.index0 > ns.last_user_index and reasoning_content -%}
{{ '\n<think>' + reasoning_content.strip() +  '</think>'}}
{%- else -%}
{{ '\n<think></think>' }}
{%- endif -%}
{%- if content.strip() -%}
{{ '\n' + content.strip() }}
{%- endif -%}
{% if m.tool_calls %}
{% for tc in m.tool_calls %}
{%- if tc.function %}{%- set tc = tc.function %}{%- endif %}
{{ '\n<tool_call>' + tc.name }}
{% set _args = tc.arguments %}
{% for k, v in _args.items() %}
<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson(ensure_ascii=False) if v is not string else v }}</arg_value>
{% endfor %}
</tool_call>{% endfor %}
{% endif %}
{%- elif m.role == 'tool' -%}
{%- if m.content is string -%}
{%- if loop.first or (messages[loop.index0 - 1].role != "tool") %}{{- '<|observation|>' }}{%- endif %}
{{- '\n<tool_response>\n' }}{{- m.content }}{{- '\n</tool_response>' }}
{%- endif -%}
{%- elif m.role == 'system' -%}<|system|>
{{ visible_text(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not enable_thinking) else '' -}}{%- endif -%}
""",
    "plain with generation tags": r"""{% for message in messages %}{% if message['role'] == 'user' %}{{ '### User:\n' + message['content']|string + '\n\n' }}{% elif message['role'] == 'assistant' %}{{ '### Assistant:\n' }}{% generation %}{{ (message['content'] or '') ~ eos_token }}{% endgeneration %}{{ '\n' }}{% else %}{{ '### ' + message.role.title() + ':\n' + message.content|string|trim + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '### Assistant:\n' }}{% endif %}""",
}


def jinja_golden():
    env = environment()
    fixed = {"bos_token": "<s>", "eos_token": "</s>"}

    def case(name, source, values):
        try:
            return {"name": name, "source": source, "values": values, "expected": env.from_string(source).render(**fixed, **values)}
        except Exception as e:
            return {"name": name, "source": source, "values": values, "error": type(e).__name__}

    small = [case(e, "{{ " + e + " }}", VALUES) for e in EXPRESSIONS + FAILING]
    small += [case(name, source, VALUES) for name, source in TEMPLATES.items()]
    for c in small:
        del c["values"]  # the same for all, so given once

    chats = []
    for family, source in FAMILIES.items():
        cases = []
        for chat in CHATS:
            values = {"tools": None, "documents": None, "add_generation_prompt": True, **chat}
            c = case(family, source, values)
            cases.append({"values": chat, **{k: c[k] for k in ("expected", "error") if k in c}})
        chats.append({"name": family, "source": source, "cases": cases})
    write("jinja.json.gz", {"values": VALUES, "small": small, "chats": chats})
    failed = [c["name"] for c in small if "error" in c]
    print(len(small), "small,", len(failed), "of them fail in Jinja2;",
          sum(len(c["cases"]) for c in chats), "chats,", sum("error" in x for c in chats for x in c["cases"]), "fail")


if __name__ == "__main__":
    splits_golden()
    jinja_golden()
    sentencepiece_golden()
