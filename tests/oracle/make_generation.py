"""Generates tokens by transformers' `generate` with the models of make_huggingface.py, for tests of zt.init_inference.

Writes tests/golden/generation.json: a list of {model, arguments, tokens}. Needs transformers, in a virtual environment of its own
(scripts/setup.sh --oracle makes it), and the models. All cases are deterministic."""

import json
import os

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

import golden

PROMPTS = [[5, 17, 3, 44], [9, 9, 30, 1], [60, 2, 11, 25]]
ONE = [[7, 21, 50]]
PADDED = {"input_ids": [[0, 0, 8, 13], [4, 31, 6, 12], [0, 19, 20, 21]],
          "attention_mask": [[0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 1, 1]]}
CASES = [
    {"input_ids": PROMPTS, "max_new_tokens": 9},
    {"input_ids": ONE, "max_length": 12},
    {"input_ids": PROMPTS, "max_new_tokens": 5, "do_sample": True, "top_k": 1, "temperature": 0.7, "num_return_sequences": 2},
    {"input_ids": PROMPTS, "max_new_tokens": 8, "repetition_penalty": 1.4},
    {"input_ids": PROMPTS, "generation_config": {"max_new_tokens": 3, "repetition_penalty": 1.2}, "max_new_tokens": 6},
    {**PADDED, "max_new_tokens": 6, "pad_token_id": 0},
    {"input_ids": PADDED["input_ids"], "max_new_tokens": 6, "pad_token_id": 0},
]


def ends(model, arguments):
    """Returns cases with the marks of the end that the answers to `arguments` contain: some end early."""
    plain = model.generate(torch.tensor(PROMPTS), max_new_tokens=9, do_sample=False).tolist()
    marks = [row[len(PROMPTS[0]) + place] for place, row in zip((2, 4), plain)]
    return [
        {**arguments, "eos_token_id": marks, "pad_token_id": 58},
        {**arguments, "eos_token_id": marks},
        {**arguments, "eos_token_id": marks[0]},
        {**arguments, "eos_token_id": marks, "pad_token_id": 58, "min_new_tokens": 6},
        {**arguments, "eos_token_id": marks, "pad_token_id": 58, "min_length": 8},
    ]


def generate(model, arguments):
    tensors = {name: torch.tensor(arguments[name]) for name in ("input_ids", "attention_mask") if name in arguments}
    others = {name: value for name, value in arguments.items() if name not in tensors}
    if "generation_config" in others:
        others["generation_config"] = GenerationConfig(**others["generation_config"])
    return model.generate(**tensors, **others).tolist()


def main():
    results = []
    for name in ("llama", "qwen3", "qwen2"):
        model = AutoModelForCausalLM.from_pretrained(golden.FOLDER / "huggingface" / name, dtype=torch.float32)
        for arguments in CASES + ends(model, {"input_ids": PROMPTS, "max_new_tokens": 9}):
            results.append({"model": name, "arguments": arguments, "tokens": generate(model, arguments)})
    with open(golden.FOLDER / "generation.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")


if __name__ == "__main__":
    main()
