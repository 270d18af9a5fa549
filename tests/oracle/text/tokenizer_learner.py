"""The text that the tokenizers of tokenizer_styles.py are learnt from, and how."""

import collections
import math

TRAINING = """The tokenizer splits a text into words, and each word into tokens that it has learnt from other texts.
A model reads the numbers of these tokens; it never sees the letters. That's why it can't count them, and doesn't try.
In 1994, Philip Gage described byte pair encoding: replace the most frequent pair of bytes by a byte that isn't used.
They're simple rules, but there are 256 bytes, 1,114,112 code points and about 150,000 characters; we'll need all of them.
for (int i = 0; i < 10; ++i) { total += values[i] * 2.5; }  // sums 10 numbers
def encode(text, special=False):\n    return [vocabulary.get(word, 0) for word in text.split(" ")]
The rain in Spain stays mainly in the plain, and the grain of the train remains the same again and again.
She sells sea shells by the sea shore; the shells that she sells are sea shells for sure.
Je ne sais pas ce que ça signifie, mais l'été est là et le café est très bon. À bientôt, cher maître!
Über die Straße läuft ein großer Bär, und das Mädchen hört schöne Lieder über Blätter.
El niño comió una manzana mañana por la mañana. ¿Quién sabe? ¡Nadie!
Привет, мир! Это простой текст, и этот текст прост.
日本語のテキストです。今日はいい天気ですね。日本の本を読みます。
中文文本分词，中文文本测试。我们在这里测试分词器！
한국어 텍스트입니다. 안녕하세요, 한국어를 배웁니다.
مرحبا بالعالم، هذا نص بسيط وهذا النص قصير.
שלום עולם, זה טקסט פשוט. שלום רב.
नमस्ते दुनिया, यह एक सरल पाठ है।
สวัสดีชาวโลก นี่คือข้อความ
Emoji 😀 👍 and ❤️; numbers 0 1 2 3 4 5 6 7 8 9, 10 20 30, 2024 and 3.14159; x = y + z; a != b; #tag @name
new token, newtoken, solo, left, right, both, spaced: words that are added tokens, too.
""".split("\n")


class Learner:
    """Learns merges of pairs of symbols, as byte pair encoding does. The trainers of tokenizers draw between equals at random,
    except for byte-level models."""

    def __init__(self, tokenizer, letters, merges, prefix="", suffix=""):
        words = collections.Counter()
        for line in TRAINING:
            text = tokenizer.normalizer.normalize_str(line) if tokenizer.normalizer else line
            words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
        counts = collections.Counter()
        for word, count in words.items():
            counts.update({letter: count * word.count(letter) for letter in word})
        known = set(sorted(counts, key=lambda letter: (-counts[letter], letter))[:letters])
        self.prefix, self.merges = prefix, []
        kept = [([letter for letter in word if letter in known], count) for word, count in words.items()]
        self.words = [(self.symbols(word, suffix), count) for word, count in kept]
        self.tokens = sorted({symbol for symbols, _ in self.words for symbol in symbols})
        while len(self.merges) < merges and self.merge():
            pass

    def symbols(self, letters, suffix):
        last = len(letters) - 1
        return [(self.prefix if i > 0 else "") + letter + (suffix if i == last else "") for i, letter in enumerate(letters)]

    def merge(self):
        pairs = collections.Counter()
        for symbols, count in self.words:
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        if not pairs:
            return False
        pair = max(pairs, key=lambda pair: (pairs[pair], pair))
        token = pair[0] + pair[1][len(self.prefix):]
        self.merges.append(pair)
        self.tokens += [] if token in self.tokens else [token]
        for symbols, _ in self.words:
            at = 0
            while at + 1 < len(symbols):
                if (symbols[at], symbols[at + 1]) == pair:
                    symbols[at:at + 2] = [token]
                at += 1
        return True

    def vocabulary(self, specials):
        return {token: number for number, token in enumerate([*specials, *(t for t in self.tokens if t not in specials)])}

    def scores(self):
        """Returns the tokens with the logarithms of their frequencies, as scores of a unigram model."""
        counts = collections.Counter(self.tokens)
        for symbols, count in self.words:
            counts.update({symbol: count for symbol in symbols})
        total = sum(counts.values())
        return [(token, round(math.log(counts[token] / total), 4)) for token in self.tokens]
