"""The tokenizers of make_tokenizers.py: small ones in the styles of published models, and some for each remaining component."""

import json
import os
import pathlib
import subprocess
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from text.tokenizer_learner import TRAINING, Learner

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
BLOOM = r" ?[^(\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
DEEPSEEK = [r"[\r\n]",
            r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u0370-\u0373\u0376-\u03ff\u0400-\u0481]+",
            r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$", r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"]
DEEPSEEK3 = [r"\p{N}{1,3}", r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
             r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
             r"\s*[\r\n]+|\s+(?!\S)|\s+"]
# Each construct of Oniguruma that its translation knows.
ONIGURUMA = (r"\h{2,}|\H(?=z)|(?<year>\d{4})|(?<!\w)_+|\bin\b|\B-\B|[[:upper:]][[:lower:]]+|[\w&]{,3}(?#comment)x|\u0101|\x{e9}|"
             r"(?i:ONE)two|(?m:a.b)|(?>[0-9]+)[.]|^#.*$|\p{Han}+|\p{^Greek}\p{Greek}|[^\W_a-m]++|[[:punct:]]{2}+|\p{Lu}{2}|"
             r"[\P{L}\S]\z|\t+?")
UNKNOWN = "[UNK]"


def alphabet():
    return pre_tokenizers.ByteLevel.alphabet()


def plain(content, **flags):
    return AddedToken(content, **{"normalized": False, **flags})


# Added tokens with all flags, which the texts of make_tokenizers.py have at many borders.
FLAGS = [
    plain("<s>", special=True), plain("</s>", special=True), plain("<|a|>", special=True), plain("<|b|>", special=True),
    plain("<|a|b|>", special=True), plain("[MASK]", special=True, lstrip=True), plain("new token"),
    plain("newtoken", normalized=True),
    plain("solo", single_word=True), plain("left", lstrip=True), plain("right", rstrip=True), plain(" spaced"),
    plain("both", lstrip=True, rstrip=True), plain("caf\u00e9tok", normalized=True),
    plain("\u00c5ngtok", normalized=True, special=True),
]


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(TRAINING, trainer)
    return tokenizer


def byte_bpe(pre_tokenizer, vocab=420, normalizer=None, decoder=None, post=None, added=(), **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder or decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=sorted(alphabet()), show_progress=False))
    tokenizer.add_tokens(list(added))
    if post:
        tokenizer.post_processor = post(tokenizer)
    return tokenizer


def splits(*patterns, behavior="isolated", invert=False):
    return [pre_tokenizers.Split(Regex(pattern), behavior, invert) for pattern in patterns]


def with_bytes(*steps, **options):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False, **options)])


def roberta(tokenizer):
    return processors.RobertaProcessing(("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>")))


def bos(tokenizer):
    return processors.Sequence([processors.ByteLevel(trim_offsets=True), processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])])


def char_bpe(normalizer=None, pre_tokenizer=None, decoder=None, merges=220, added=(), specials=(), letters=160, **options):
    tokenizer = Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    # Without a pre-tokenizer, whole lines would be merged.
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="never")
    prefix, suffix = options.get("continuing_subword_prefix", ""), options.get("end_of_word_suffix", "")
    learner = Learner(tokenizer, letters, merges, prefix, suffix)
    tokenizer.model = models.BPE(vocab=learner.vocabulary(specials), merges=learner.merges, **options)
    if pre_tokenizer is None:
        data = json.loads(tokenizer.to_str())
        data["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(data))
    if decoder:
        tokenizer.decoder = decoder
    tokenizer.add_special_tokens([special for special in specials if special not in BYTE_TOKENS])
    tokenizer.add_tokens(list(added))
    return tokenizer


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA2_DECODER = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def llama2():
    tokenizer = char_bpe(normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]),
                         decoder=decoders.Sequence(LLAMA2_DECODER), specials=["<unk>", "<s>", "</s>", *BYTE_TOKENS], letters=60,
                         unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A <s> $B", special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def word_piece(normalizer, cleanup=True):
    specials = [UNKNOWN, "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    vocabulary = Learner(tokenizer, 160, 220, "##").vocabulary(specials)
    tokenizer.model = models.WordPiece(vocabulary, unk_token=UNKNOWN, max_input_chars_per_word=50)
    tokenizer.add_special_tokens(specials)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


# What a table of normalization rules replaces, and by what. A key that is longer than a grapheme, a removed character, and more.
RULES = {"fi": "\ufb01", "\u2460": "1", "\uff21": "A", "e\u0301": "\u00e9", "\u00df": "ss", "\u2026": "...", "\u0008": "",
         "\u200b": "", "\t": " ", "\u0e33": "\u0e4d\u0e32", "\u0916\u093c": "\u0959", "o": "0", "\r\n": "\n"}


def precompiled(rule=None):
    """Returns the table of normalization rules that spm_train writes: its own rule of that name, or the short list above."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "text").write_text("\n".join(TRAINING) * 3, encoding="utf-8")
        rules = [f"--normalization_rule_name={rule}"]
        if rule is None:
            codes = [[" ".join(f"{ord(character):04X}" for character in side) for side in pair] for pair in RULES.items()]
            (path / "rules").write_text("".join(f"{left}\t{right}\n" for left, right in codes))
            rules = [f"--normalization_rule_tsv={path / 'rules'}"]
        subprocess.run(["spm_train", f"--input={path / 'text'}", f"--model_prefix={path / 'model'}", "--vocab_size=300",
                        "--hard_vocab_limit=false", *rules], check=True, capture_output=True)
        return table_of((path / "model.model").read_bytes())


def table_of(model):
    """Returns precompiled_charsmap (field 2) of normalizer_spec (field 3) of a sentencepiece model, a protocol buffer."""
    def fields(data):
        at = 0

        def number():
            nonlocal at
            value = shift = 0
            while True:
                byte = data[at]
                at += 1
                value |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    return value

        while at < len(data):
            key = number()
            size = number() if key & 7 in (0, 2) else {1: 8, 5: 4}[key & 7]
            if key & 7 == 0:
                continue
            yield key >> 3, data[at:at + size]
            at += size

    spec = next(value for field, value in fields(model) if field == 3)
    return next(value for field, value in fields(spec) if field == 2)


def unigram(normalizer, pre_tokenizer, decoder, added=(), byte_fallback=False):
    tokenizer = Tokenizer(models.Unigram())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoder
    specials = ["<pad>", "</s>", "<unk>", "[MASK]"]
    pieces = [(token, 0.0) for token in specials + (BYTE_TOKENS if byte_fallback else [])]
    tokenizer.model = models.Unigram([*pieces, *Learner(tokenizer, 160, 220).scores()], 2, byte_fallback)
    tokenizer.add_special_tokens(specials)
    tokenizer.add_tokens(list(added))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B", special_tokens=[("</s>", 1)])
    return tokenizer


def word_level(pre_tokenizer, normalizer=None, decoder=None, added=()):
    tokenizer = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    if decoder:
        tokenizer.decoder = decoder
    train(tokenizer, trainers.WordLevelTrainer(vocab_size=400, special_tokens=[UNKNOWN], show_progress=False))
    tokenizer.add_tokens(list(added))
    return tokenizer


def published():
    """Styles of published models."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "gpt2", byte_bpe(byte_level, added=[plain("<|endoftext|>", special=True)],
                           post=lambda _: processors.ByteLevel(trim_offsets=False))
    yield "roberta", byte_bpe(pre_tokenizers.ByteLevel(add_prefix_space=True), added=FLAGS[:2], post=roberta)
    yield "llama2", llama2()
    yield "llama2_metaspace", unigram_like_llama()
    yield "llama3", byte_bpe(with_bytes(*splits(LLAMA3)), post=bos, added=FLAGS, ignore_merges=True)
    yield "qwen2", byte_bpe(with_bytes(*splits(QWEN2)), normalizer=normalizers.NFC(), added=FLAGS)
    yield "gpt4o", byte_bpe(with_bytes(*splits(O200K)))
    yield "cl100k", byte_bpe(with_bytes(*splits(CL100K, behavior="removed", invert=True)))
    yield "bloom", byte_bpe(with_bytes(*splits(BLOOM)), added=FLAGS[:2])
    yield "deepseek", byte_bpe(with_bytes(*splits(*DEEPSEEK), pre_tokenizers.Digits(individual_digits=True)))
    yield "deepseek3", byte_bpe(with_bytes(*splits(*DEEPSEEK3)), added=FLAGS[2:5])
    yield "falcon", byte_bpe(pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), byte_level, pre_tokenizers.Digits(individual_digits=False),
        *splits(r"[0-9][0-9][0-9]")]))
    yield "bert", word_piece(normalizers.BertNormalizer())
    cased = normalizers.BertNormalizer(lowercase=False, clean_text=False, handle_chinese_chars=False)
    yield "bert_cased", word_piece(cased, cleanup=False)
    yield "t5", unigram(normalizers.Precompiled(precompiled()), pre_tokenizers.Metaspace(), decoders.Metaspace())
    albert = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
              normalizers.Lowercase(), normalizers.Precompiled(precompiled("nmt_nfkc")), normalizers.Replace(Regex(" {2,}"), " ")]
    words = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    yield "albert", unigram(normalizers.Sequence(albert), words, decoders.Metaspace())


def unigram_like_llama():
    return unigram(None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
                   decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]),
                   added=FLAGS, byte_fallback=True)


def components():
    """A few tokenizers for what no style above has."""
    space = pre_tokenizers.WhitespaceSplit()
    yield "prefix_suffix", char_bpe(normalizers.NFKC(), space, decoders.BPEDecoder(suffix="</w>"), unk_token="[UNK]",
                                    specials=["[UNK]"], continuing_subword_prefix="##", end_of_word_suffix="</w>", letters=50,
                                    added=FLAGS[:3])
    yield "unknown", char_bpe(normalizers.NFKD(), pre_tokenizers.Whitespace(), unk_token="[UNK]", specials=["[UNK]"], letters=50)
    scripts = pre_tokenizers.Sequence([pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(4)])
    yield "fused", char_bpe(normalizers.NFD(), scripts,
                            unk_token="[UNK]", fuse_unk=True, specials=["[UNK]"], letters=50)
    yield "no_unknown", char_bpe(normalizers.Sequence([normalizers.Nmt(), normalizers.Strip()]), space, letters=30)
    yield "byte_normalizer", char_bpe(normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]),
                                      pre_tokenizers.Split(Regex("\u0120?[^\u0120]+|\u0120+"), "isolated"), decoders.ByteLevel(),
                                      added=FLAGS, letters=256)
    yield "metaspace_first", char_bpe(normalizers.Sequence([normalizers.Strip(right=False), normalizers.Lowercase()]),
                                      pre_tokenizers.Metaspace(prepend_scheme="first"),
                                      decoders.Metaspace(prepend_scheme="first"), added=FLAGS, unk_token="[UNK]",
                                      specials=["[UNK]"])
    one_by_one = [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.UnicodeScripts()]
    yield "metaspace_changed", char_bpe(normalizers.NFKC(), pre_tokenizers.Sequence([
        *one_by_one, pre_tokenizers.Metaspace(prepend_scheme="first")]), decoders.Metaspace(prepend_scheme="first"),
        unk_token="[UNK]", specials=["[UNK]"])
    yield "metaspace_never", char_bpe(normalizers.StripAccents(), pre_tokenizers.Metaspace("_", "never", True),
                                      decoders.Metaspace("_", "never"))
    yield "regex", byte_bpe(with_bytes(*splits(ONIGURUMA)))
    letters = pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit(" "), pre_tokenizers.FixedLength(1)])
    yield "ctc", word_level(letters, None, decoders.CTC("a", "e", True))
    yield "replaced", word_level(pre_tokenizers.Sequence([space, pre_tokenizers.Digits(individual_digits=True)]),
                                 normalizers.Sequence([normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("the", "THE"),
                                                       normalizers.Replace(Regex("x*"), "-"), normalizers.Prepend("p")]),
                                 decoders.Sequence([decoders.Replace(Regex("[aeiou]"), "*"), decoders.Strip("*", 0, 1),
                                                    decoders.Strip("p", 1, 0)]), added=FLAGS)
    for behavior in ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        yield f"split_{behavior}", word_level(pre_tokenizers.Sequence([
            pre_tokenizers.Split("e", behavior, False),
            pre_tokenizers.Split(Regex(r"[\s\d]+|o*"), behavior, behavior == "contiguous"),
            pre_tokenizers.Punctuation(behavior)]))


def make_all():
    """Returns {name: tokenizer.json as a dictionary}."""
    made = {name: json.loads(tokenizer.to_str()) for name, tokenizer in [*published(), *components()]}
    gpt2 = made["gpt2"]["model"]
    gpt2["merges"] = [" ".join(merge) for merge in gpt2["merges"]]  # as older versions wrote them
    return made
