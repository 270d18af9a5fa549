"""Generates tokens by transformers' `generate` with the models of make_huggingface.py, for tests of zt.init_inference.

Writes tests/golden/generation.json: a list of {model, arguments, tokens}. A case may also have `file`, the content of the
folder's generation_config.json, and `config`, changes of its config.json. In place of tokens, a case of draws has `draws`: for
each sample the tokens that may be drawn first, with their log-probabilities. Needs transformers, in a virtual environment of its
own (scripts/setup.sh --oracle makes it), and the models. All cases are deterministic."""

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import AutoModelForCausalLM, GenerationConfig

import golden

MODELS = ("llama", "qwen3", "qwen2", "gpt2", "llama3", "mistral", "mixtral", "qwen3_moe")
WITHOUT_FILE = ("llama", "qwen3", "qwen2")
PROMPTS = [[5, 17, 3, 44], [9, 9, 30, 1], [60, 2, 11, 25]]
ONE = [[7, 21, 50]]
LONG = [[(5 * place + 3) % 60 for place in range(20)]]
SHORT, POSITIONS = "gpt2", 12  # positions that are too few for some cases
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
    {"input_ids": PROMPTS},
    {"input_ids": LONG},
]
# What has no effect on the likeliest token.
IDLE = {"temperature": 0.5, "top_p": 0.4, "top_k": 3, "min_p": 0.2, "typical_p": 0.5, "epsilon_cutoff": 0.1, "eta_cutoff": 0.1,
        "num_beams": 1, "length_penalty": 2.0, "early_stopping": True, "bos_token_id": 1, "renormalize_logits": True,
        "transformers_version": "4.40.0", "_from_model_config": True, "a_name_of_nobody": 3, "use_cache": False}
# The files of draws, and the arguments beside them.
DRAWS = [
    ({"do_sample": True}, {}),
    ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, {}),
    ({"do_sample": True, "temperature": 1.7, "top_k": 7}, {}),
    ({"do_sample": True, "top_k": 0, "min_p": 0.3}, {}),
    ({"do_sample": True, "top_k": 20, "top_p": 0.8, "temperature": 0.7, "repetition_penalty": 1.3, "min_p": 0.02}, {}),
    ({"do_sample": True, "temperature": 0.1, "top_p": 0.2, "top_k": 2}, {"temperature": 1.2, "top_p": 1.0, "top_k": 9}),
    ({"temperature": 0.8, "top_p": 0.7}, {"do_sample": True}),
    ({"do_sample": True, "temperature": 0.9}, {"generation_config": {"top_k": 4, "repetition_penalty": 2.0}}),
]


def marks_of(model):
    """Returns tokens that the answers to PROMPTS contain: as marks of the end, they end some answers early."""
    plain = model.generate(torch.tensor(PROMPTS), max_new_tokens=9, do_sample=False, eos_token_id=-1).tolist()
    return [row[len(PROMPTS[0]) + place] for place, row in zip((2, 4), plain)]


def ends(marks):
    """Returns arguments with marks of the end."""
    arguments = {"input_ids": PROMPTS, "max_new_tokens": 9}
    return [
        {**arguments, "eos_token_id": marks, "pad_token_id": 58},
        {**arguments, "eos_token_id": marks},
        {**arguments, "eos_token_id": marks[0]},
        {**arguments, "eos_token_id": -1},
        {**arguments, "eos_token_id": marks, "pad_token_id": 58, "min_new_tokens": 6},
        {**arguments, "eos_token_id": marks, "pad_token_id": 58, "min_length": 8},
    ]


def with_files(marks):
    """Returns cases (file, arguments, changes of config.json). Without a file, transformers reads config.json."""
    some, few = {"input_ids": PROMPTS}, {"input_ids": PROMPTS, "max_new_tokens": 8}
    end = {"eos_token_id": marks, "pad_token_id": 58}
    return [
        ({**end, "max_new_tokens": 9}, some, {}),
        ({"eos_token_id": marks, "max_new_tokens": 9}, some, {}),
        ({"eos_token_id": marks[1], "pad_token_id": -1}, {"input_ids": PROMPTS[:1]}, {}),
        ({**end, "max_length": 12, "min_length": 10}, some, {}),
        ({**end, "max_length": 9, "min_length": 30}, some, {}),
        ({**end, "max_new_tokens": 9, "min_length": 12, "min_new_tokens": 1}, some, {}),
        ({**end, "min_new_tokens": 7}, {**few, "min_new_tokens": 0}, {}),
        ({"repetition_penalty": 1.3, "max_new_tokens": 8}, some, {}),
        ({"repetition_penalty": 1.3, "max_new_tokens": 8}, {**some, "repetition_penalty": 1.0}, {}),
        ({"do_sample": True, "top_k": 1, "temperature": 0.6, "top_p": 0.9, "max_new_tokens": 6}, some, {}),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9, "min_p": 0.1, "typical_p": 0.5}, {**few, "do_sample": False}, {}),
        ({"max_new_tokens": 6}, {**some, "max_length": 9}, {}),
        ({"max_length": 9}, {**some, "max_new_tokens": 6}, {}),
        ({"max_length": 9}, {**some, "max_length": 7}, {}),
        ({}, some, {}),
        ({}, {"input_ids": LONG}, {}),
        ({"max_new_tokens": 9}, some, {"eos_token_id": marks}),
        (None, few, {"eos_token_id": marks, "pad_token_id": 58}),
        (None, some, {"eos_token_id": marks[0], "max_length": 11, "repetition_penalty": 1.2}),
        ({**end, "max_new_tokens": 9}, some, {"eos_token_id": 1, "pad_token_id": 4, "max_length": 5}),
        ({**end}, {**few, "eos_token_id": marks[0], "pad_token_id": 33}, {}),
        ({**end}, {**some, "generation_config": {"max_new_tokens": 7, "pad_token_id": 12}}, {}),
        ({**end}, {**few, "eos_token_id": -1}, {}),
        ({"eos_token_id": [99, marks[0]], "pad_token_id": 58}, few, {}),
        ({"eos_token_id": 99}, few, {}),
        (IDLE, few, {}),
        ({**IDLE, **end}, {**few, "do_sample": True, "top_k": 1, "typical_p": 1.0, "epsilon_cutoff": 0, "eta_cutoff": 0}, {}),
        ({"num_beams": 3, "no_repeat_ngram_size": 2}, {**few, "num_beams": 1, "no_repeat_ngram_size": 0}, {}),
        ({**end, "pad_token_id": 0}, {**PADDED, "max_new_tokens": 6}, {}),
        ({"pad_token_id": 0}, {"input_ids": PADDED["input_ids"], "max_new_tokens": 6}, {}),
        ({"pad_token_id": 0, "eos_token_id": [0, 1]}, {"input_ids": PADDED["input_ids"], "max_new_tokens": 6}, {}),
        ({"pad_token_id": 3}, few, {}),
        ({"pad_token_id": 9, "eos_token_id": marks}, few, {}),
        ({"pad_token_id": 0, "repetition_penalty": 1.5}, {**PADDED, "max_new_tokens": 6}, {}),
        ({**end}, {**few, "attention_mask": [[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 1]]}, {}),
    ]


def opened(name, file, config):
    """Returns the model of a folder with this generation_config.json and these changes of its config.json."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        shutil.copytree(golden.FOLDER / "huggingface" / name, path)
        if file is not None:
            (path / "generation_config.json").write_text(json.dumps(file))
        content = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps({**content, **config}))
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, experts_implementation="eager")


def has_gaps(file, arguments):
    """Returns whether padding lies between tokens: transformers' windows of attention count it."""
    rows, pad = arguments.get("attention_mask"), (file or {}).get("pad_token_id")
    if rows is None and pad is not None:
        rows = [[int(token != pad) for token in row] for row in arguments["input_ids"]]
    return any(sorted(row) != row for row in rows or [])


def generate(model, arguments, **more):
    tensors = {name: torch.tensor(arguments[name]) for name in ("input_ids", "attention_mask") if name in arguments}
    others = {name: value for name, value in arguments.items() if name not in tensors}
    if "generation_config" in others:
        others["generation_config"] = GenerationConfig(**others["generation_config"])
    return model.generate(**tensors, **others, **more)


def draws(model, arguments):
    """Returns by sample the tokens that may be drawn first, in ascending order, and their log-probabilities."""
    scores = generate(model, arguments, max_new_tokens=1, return_dict_in_generate=True, output_scores=True).scores[0]
    logprobs = torch.log_softmax(scores.double(), -1)
    tokens = [[token for token, number in enumerate(row) if number > -torch.inf] for row in logprobs.tolist()]
    return {"tokens": tokens, "logprobs": [[round(row[token].item(), 7) for token in of] for row, of in zip(logprobs, tokens)]}


def main():
    results = []
    for name in MODELS:
        model = opened(name, None, {})
        marks = marks_of(model)
        for arguments in CASES + ends(marks) if name in WITHOUT_FILE else []:
            results.append({"model": name, "arguments": arguments, "tokens": generate(model, arguments).tolist()})
        for file, arguments, config in with_files(marks):
            if name == SHORT and (max(map(len, arguments["input_ids"])) > POSITIONS):
                continue
            model = opened(name, file, config)
            if getattr(model.config, "sliding_window", None) and has_gaps(file, arguments):
                continue
            tokens = generate(model, arguments).tolist()
            if name == SHORT and len(tokens[0]) > POSITIONS:
                continue
            results.append({"model": name, "file": file, "config": config, "arguments": arguments, "tokens": tokens})
        for file, more in DRAWS:
            arguments = {"input_ids": PROMPTS, **more}
            drawn = draws(opened(name, file, {}), arguments)
            results.append({"model": name, "file": file, "config": {}, "arguments": arguments, "draws": drawn})
    with open(golden.FOLDER / "generation.json", "w") as file:
        file.write("[\n" + ",\n".join(json.dumps(result) for result in results) + "\n]\n")


if __name__ == "__main__":
    main()
