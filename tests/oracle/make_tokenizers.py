"""Makes small tokenizers in the styles of published ones, and what Hugging Face's tokenizers makes of a list of texts.

Writes to tests/golden/tokenizers/: texts.json, and for each style NAME.json (the tokenizer) and NAME.expected.json with, for each
text, [ids without special tokens, ids with parsed ones, ids with added ones, decoded text]. null stands for the list before it.
Also properties.json, with the ranges of characters that tokenizers takes for punctuation and so on.

    make_tokenizers.py                                   writes the golden files
    make_tokenizers.py --live COUNT BINARY [NAME ...]    compares COUNT random texts per style with encode_lines, which is BINARY

Needs spm_train (package sentencepiece of Debian), and tokenizers in the .venv-huggingface of scripts/setup.sh --oracle."""

import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
import tokenizers
from tokenizers import Tokenizer, normalizers, pre_tokenizers

import golden
from text import tokenizer_styles

FOLDER = golden.FOLDER / "tokenizers"
LAST = 0x110000
UNICODE = "texts need the characters of Unicode 14: use Python 3.11"
BATCH = 2000

# Texts that have broken tokenizers: spaces, line ends, marks, joiners, many scripts, and special tokens at borders.
TEXTS = [
    "", " ", "  ", "   a", "a   ", "\t", "\n", "\r\n", "\n\n\n", " \n ", "a\nb\r\nc\rd", "a \t b", "tab\there", "\u00a0a\u00a0b",
    "\u2003wide\u2009thin\u200bzero", "line\u2028para\u2029end", "\u180emongol\u180e", "\x00null\x00", "\x01\x02\x7f\x85",
    "The quick brown fox jumps over the lazy dog.", "Hello, world! It's 3.14 o'clock; don't panic -- we'll see.",
    "I'M HE'S we'Re they'VE x'll 'd", "don\u2019t can\u2019t", "snake_case camelCase PascalCase kebab-case", "a" * 300,
    "ab" * 150, "word " * 40, " " * 70 + "x", "x" + "\n" * 20, "1234567890", "3,141,592.65", "12 345 678",
    "\u0661\u0662\u0663 \u06f4\u06f5", "\u096b\u096c \u0be7\u0be8 \u2167 \u00bd \u00b2", "caf\u00e9 cafe\u0301",
    "na\u00efve na\u0131ve \u0130stanbul \u00df \u1e9e", "\u00c5ngstr\u00f6m \u212b \u2126 \ufb01 \ufb03",
    "e\u0301\u0323\u0302 o\u0323\u0302", "\u0344 \u0958 \u1e9b\u0323", "\u0301start", "z\u0351\u036b\u0343\u0363 zalgo",
    "\u1100\u1161\u11a8 \uac01 \u1112\u1161\u11ab\uae00", "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002", "\u4e2d\u6587\u5206\u8bcd\uff0c\u6d4b\u8bd5\uff01",
    "\uff28\uff45\uff4c\uff4c\uff4f \uff11\uff12\uff13 \u30ab\u3099",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645", "\u0640\u0651\u064e \ufdfa \ufefb",
    "\u05e9\u05b8\u05c1\u05dc\u05d5\u05b9\u05dd", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e19\u0e33",
    "\u0928\u092e\u0938\u094d\u0924\u0947 \u0915\u094d\u0937", "\u0bb5\u0ba3\u0b95\u0bcd\u0b95\u0bae\u0bcd",
    "\u1eafn ph\u1edf Vi\u1ec7t", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
    "\u0393\u03b5\u03b9\u03ac \u03a3\u0391\u03a3 \u03c2", "\U0001f600\U0001f44d\U0001f3fd",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466", "\U0001f1e9\U0001f1ea\U0001f1ef", "1\ufe0f\u20e3 \u2764\ufe0f",
    "\U00020000\U0002f800", "\U0001d518\U0001d52b\U0001d526", "\ufffd\ufeffbom", "\ue000private", "x < y && y > z || !w",
    "#include <stdio.h>\nint main(void) {\n\treturn 0;\n}\n", "for i in range(10):\n    print(i)\n",
    "https://example.org/a?b=c&d=%20#e", "{\"a\": [1, 2.5, null]}", "\\u0041 \\n \\\\", "$%^&*()_+-=[]{}|;':\",./<>?`~",
    "\u2581a \u2581", "\u0120\u010a\u0100", "<0x41> <0xFF>", "##ing ##", "</w> a</w>", "...",
    "\u2026\u3002\u060c\u061b\u06d4\u0964", "<s>", "</s>", "a<s>b", "<s> a </s>", " <s>  </s> ", "<s><s>", "<|a|>",
    "x<|a|>y <|a|>", "<|a|><|b|>", "<|a|b|>", "<|", "|>", "[MASK]", "a [MASK] b", "a[MASK]b", "  [MASK]  ", "[mask]",
    "[CLS] x [SEP]", "new token", "newtoken", "a newtoken b", "NewToken", "solo", "a solo b", "asolo", "solob", "solo_",
    "\u00e9solo\u00e9 solo\u0301", "solo,solo", "left", "  left", "a\t left b", "left left", "right  ", "right right",
    "a right\n\nb", "both", "  both  both  ", "bothboth", "Stra\u00dfe", "straSSe", "caf\u00e9tok cafe\u0301tok",
    "ONEtwo onetwo Onetwo oneTWO", "a\nb axb a.b", "12.34. 2024x 12345", "# a comment\n#another\nx # no",
    "\u6f22\u5b57kana \u0391\u0392a\u0393", "xx&yx ffz fz 0AfFz gz", "in inside -in- within", "__x_ _x x__y", "Word wOrd WORD",
    "!? ... a!b", "\u0101\u00e9 x\u00e9\u0101", "end \t", "\t\t\tq", "\u00b2_\u00b3 x\u00bc", "A\u030angtok", " spaced",
    "a spaced b", "right spaced", "\uff13\uff14 ab", "\u2460\u2461\u3231x", "e\u0301\uff11\uff12",
]


def characters():
    """Returns the characters that Unicode 14, which this Python knows, assigns, by the blocks of 128 that they are in."""
    assert unicodedata.unidata_version == "14.0.0", UNICODE
    blocks = {}
    for code in range(1, LAST):
        if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co"):
            blocks.setdefault(code >> 7, []).append(chr(code))
    return list(blocks.values())


class RandomTexts:
    """Random texts: words of one block, any characters, marks, spaces, and parts of the texts above."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.blocks = characters()
        self.words = sorted({word for text in TEXTS if len(text) < 200 for word in text.split(" ") if word})
        self.marks = [chr(code) for code in range(LAST) if unicodedata.category(chr(code)) in ("Mn", "Me", "Mc")]

    def part(self):
        draw, kind = self.random, self.random.randrange(12)
        if kind < 3:
            return "".join(draw.choices(draw.choice(self.blocks), k=draw.randrange(1, 6)))
        if kind < 5:
            return "".join(draw.choice(draw.choice(self.blocks)) for _ in range(draw.randrange(1, 5)))
        if kind < 7:
            return draw.choice(self.words)
        if kind < 8:
            return "".join(draw.choices(self.blocks[0], k=draw.randrange(1, 8)))
        if kind < 9:
            return draw.choice("aeoAEO\u0915\u05d0\u0627\u1100") + "".join(draw.choices(self.marks, k=draw.randrange(1, 4)))
        if kind < 10:
            return "".join(draw.choices(self.marks[:200], k=draw.randrange(1, 5)))
        return draw.choice([" ", "  ", "\n", "\t", "\r\n", " \n", "1", "23", "456", "\u00a0", "'s", "'LL", "."])

    def text(self):
        return "".join(self.part() for _ in range(self.random.randrange(1, 9)))


def results(tokenizer, text):
    tokenizer.encode_special_tokens = True
    none = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    parsed = tokenizer.encode(text, add_special_tokens=False).ids
    added = tokenizer.encode(text).ids
    return [none, parsed, added, tokenizer.decode(added, skip_special_tokens=True)]


def short(result):
    """Writes null for a list that is equal to the one before it."""
    none, parsed, added, decoded = result
    return [none, None if parsed == none else parsed, None if added == parsed else added, decoded]


def dump(name, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    (FOLDER / f"{name}.json").write_text(text + "\n", encoding="utf-8")


def ranges(codes):
    found = []
    for code in codes:
        if found and found[-1][1] == code - 1:
            found[-1][1] = code
        else:
            found.append([code, code])
    return found


def properties():
    """Asks tokenizers for each character that Unicode 14 assigns whether it has a property."""
    codes = [code for code in range(1, LAST) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    assert unicodedata.unidata_version == "14.0.0", UNICODE
    bert = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = normalizers.BertNormalizer(**{**bert, "clean_text": True})
    accents, all_accents = normalizers.BertNormalizer(**{**bert, "strip_accents": True}), normalizers.StripAccents()

    def splits(splitter):
        return lambda text: len(splitter.pre_tokenize_str(text)) > 1

    def removes(normalizer):
        return lambda text: normalizer.normalize_str(text) == "aa"

    tests = {
        "punctuation": splits(pre_tokenizers.Punctuation()), "white_space": splits(pre_tokenizers.WhitespaceSplit()),
        "numeric": splits(pre_tokenizers.Digits()), "control": removes(clean), "nonspacing_mark": removes(accents),
        "combining_mark": removes(all_accents),
    }
    found = {name: ranges(code for code in codes if test(f"a{chr(code)}a")) for name, test in tests.items()}
    return {"assigned": ranges(codes), **found}


def write_golden():
    assert tokenizers.__version__.startswith("0.23."), f"tokenizers is {tokenizers.__version__}, not 0.23"
    FOLDER.mkdir(parents=True, exist_ok=True)
    draw = RandomTexts(17)
    texts = TEXTS + [draw.text() for _ in range(60)]
    dump("texts", texts)
    dump("properties", properties())
    for name, style in tokenizer_styles.make_all().items():
        dump(name, style)
        tokenizer = Tokenizer.from_str(json.dumps(style))
        dump(f"{name}.expected", [short(results(tokenizer, text)) for text in texts])


def compare(name, path, count, binary):
    """Compares random texts. Returns the number of texts with a difference, and prints the first ones."""
    tokenizer = Tokenizer.from_file(str(path))
    draw = RandomTexts(f"live {name}")
    different = 0
    for _ in range(0, count, BATCH):
        texts = [draw.text() for _ in range(BATCH)]
        with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
            file.write("".join(json.dumps(text) + "\n" for text in texts))
            file.seek(0)
            done = subprocess.run([binary, str(path)], stdin=file, capture_output=True, text=True, encoding="utf-8", check=True)
        for text, line in zip(texts, done.stdout.split("\n")):
            got, want = json.loads(line), results(tokenizer, text)
            if got != want:
                different += 1
                if different <= 3:
                    print(f"  {text!r}\n    got  {got}\n    want {want}")
    return different


def compare_live(count, binary, names):
    failed = 0
    for path in sorted(FOLDER.glob("*.expected.json")):
        name = path.name.removesuffix(".expected.json")
        if not names or name in names:
            different = compare(name, path.with_name(f"{name}.json"), count, binary)
            print(f"{name}: {count - different} of {count} texts are equal", flush=True)
            failed += different > 0
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    if len(sys.argv) >= 4 and sys.argv[1] == "--live":
        compare_live(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    elif len(sys.argv) == 1:
        write_golden()
    else:
        sys.exit(__doc__)
