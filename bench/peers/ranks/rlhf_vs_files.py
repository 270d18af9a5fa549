"""Writes the models and the data of rlhf_vs.py, in a process of its own: its memory is free when the sides start."""

import json
import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # needs.py

import needs

needs.packages("numpy", "tokenizers", "torch", "transformers", environment=".venv-rlhf", starter="rlhf_vs.py")

import numpy
import tokenizers
import torch
import transformers

# By size: the options of a Llama model. The columns of its matrices are whole groups of 64, as packed formats need.
SIZES = {
    "0.8M": dict(num_hidden_layers=4, hidden_size=128, intermediate_size=320, num_attention_heads=4, vocab_size=256),
    "27.4M": dict(num_hidden_layers=8, hidden_size=512, intermediate_size=1216, num_attention_heads=8, vocab_size=4000),
}
STEPS = 8             # different batches of a row; they repeat
LONGEST = 128         # tokens of a sequence of sft and dpo
PROMPT_TOKENS, ANSWER_TOKENS = 32, 64
END = "</s>"  # the word of token 0
# By size: records of a step of sft, pairs of a step of dpo, prompts of an iteration of grpo and ppo.
COUNTS = {"0.8M": dict(sft=16, dpo=8, grpo=4, ppo=32), "27.4M": dict(sft=8, dpo=4, grpo=2, ppo=8)}


def write_model(size, seed, folder):
    """Writes a random model and its tokenizer, whose words are the numbers of the tokens. Token 0 ends answers and pads."""
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(**SIZES[size], max_position_embeddings=1024, bos_token_id=None, eos_token_id=0,
                                      pad_token_id=0)
    transformers.LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    words = {END: 0, **{str(token): token for token in range(1, config.vocab_size)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=END))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    ends = dict(eos_token=END, pad_token=END, unk_token=END)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **ends).save_pretrained(folder)


def data_of(vocab, counts):
    """Returns random batches. Every answer of sft and dpo ends with token 0."""
    random = numpy.random.default_rng(1)

    def tokens(count):
        return random.integers(1, vocab, int(count)).tolist()

    def sizes():
        total = random.integers(LONGEST // 4, LONGEST + 1)
        return total // 4, total - total // 4 - 1

    def record():
        prompt, answer = sizes()
        return [tokens(prompt), tokens(answer) + [0]]

    def pair():
        prompt, answer = sizes()
        return {"prompt": tokens(prompt), "chosen": tokens(answer) + [0],
                "rejected": tokens(random.integers(1, LONGEST - prompt)) + [0]}

    return {
        "vocab": vocab, "answer_tokens": ANSWER_TOKENS,
        "sft": [[record() for _ in range(counts["sft"])] for _ in range(STEPS)],
        "dpo": [[pair() for _ in range(counts["dpo"])] for _ in range(STEPS)],
        "prompts": {row: [[tokens(PROMPT_TOKENS) for _ in range(counts[row])] for _ in range(STEPS)] for row in ("grpo", "ppo")},
    }


def main():
    size, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    write_model(size, 1, folder / "model")
    write_model(size, 2, folder / "reference")
    (folder / "data.json").write_text(json.dumps(data_of(SIZES[size]["vocab_size"], COUNTS[size])))


if __name__ == "__main__":
    main()
