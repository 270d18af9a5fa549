#!/usr/bin/env python3
"""Measures how fast ztoolkit, transformers, ctranslate2 and DeepSpeed's init_inference generate, with the same random model, in
alternation.

    .venv-huggingface/bin/python bench/peers/infer_vs.py                          a GPT-2 of 27.4 M parameters, bf16
    .venv-huggingface/bin/python bench/peers/infer_vs.py --model llama_1b --sides ztoolkit transformers

Each side is a process that loads the model once, and answers the rows in turns: a prompt of 512 tokens with one token of answer;
one answer of --tokens tokens; 16 answers at once. All draw the likeliest token. A side whose package is missing is left out, and a
line says so: ctranslate2 and llama_cpp are not installed by scripts/setup.sh (pip install ctranslate2 llama-cpp-python). Prints the
median seconds and each side's time over ztoolkit's. In fp32 the benchmark fails if the tokens of two sides differ.
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import needs

needs.packages("numpy", "torch", "transformers", environment=".venv-huggingface")

import numpy
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
ZTOOLKIT = ROOT / "build/release/bin/ztoolkit"
MODELS = {
    "gpt_27m": dict(kind="gpt2", n_layer=8, n_embd=512, n_head=8, vocab_size=4096, n_positions=1024),
    "llama_1b": dict(kind="llama", num_hidden_layers=16, hidden_size=2048, intermediate_size=5632, num_attention_heads=32,
                     num_key_value_heads=8, vocab_size=32000, max_position_embeddings=1024),
}
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
PACKAGES = {"transformers": ["transformers"], "ctranslate2": ["ctranslate2", "transformers"], "deepspeed": ["deepspeed", "transformers"]}


def write_model(name, dtype, folder):
    """Writes a random model as transformers writes it."""
    import transformers

    options = dict(MODELS[name])
    kind = options.pop("kind")
    torch.manual_seed(1)
    ends = dict(bos_token_id=0, eos_token_id=0)
    config = transformers.GPT2Config(**options, **ends) if kind == "gpt2" else transformers.LlamaConfig(**options, **ends)
    model = transformers.AutoModelForCausalLM.from_config(config).to(DTYPES[dtype])
    model.save_pretrained(folder)


class TransformersSide:
    def __init__(self, folder, options):
        import transformers

        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[options.dtype]).eval()

    @torch.inference_mode()
    def generate(self, prompts, tokens):
        ids = torch.tensor(prompts)
        out = self.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=tokens, min_new_tokens=tokens,
                                  do_sample=False, pad_token_id=0)
        return out[0, ids.shape[1]:].tolist()


class DeepspeedSide(TransformersSide):
    def __init__(self, folder, options):
        super().__init__(folder, options)
        import deepspeed

        self.model = deepspeed.init_inference(self.model, config={"dtype": DTYPES[options.dtype], "replace_with_kernel_inject": False})


class Ctranslate2Side:
    def __init__(self, folder, options):
        import ctranslate2

        converted = folder + "_ctranslate2"
        if not pathlib.Path(converted).exists():
            converter = ctranslate2.converters.TransformersConverter(folder)
            converter.convert(converted, quantization={"fp32": "float32", "bf16": "bfloat16"}[options.dtype])
        self.generator = ctranslate2.Generator(converted, device="cpu", intra_threads=options.threads, compute_type="default")

    def generate(self, prompts, tokens):
        words = [[str(token) for token in prompt] for prompt in prompts]
        results = self.generator.generate_batch(words, max_length=tokens, min_length=tokens, beam_size=1, sampling_topk=1,
                                                include_prompt_in_result=False, end_token=[])
        return [int(token) for token in results[0].sequences_ids[0]]


SIDES = {"transformers": TransformersSide, "deepspeed": DeepspeedSide, "ctranslate2": Ctranslate2Side}


def serve(arguments):
    """Runs a side of Python: reads rows, and answers them."""
    options = parser().parse_args(arguments[2:])
    torch.set_num_threads(options.threads)
    side = SIDES[arguments[0]](arguments[1], options)
    for line in sys.stdin:
        row = json.loads(line)
        begin = time.monotonic()
        first = side.generate(row["prompts"], row["tokens"])
        print("result " + json.dumps({"seconds": time.monotonic() - begin, "first": first}), flush=True)


class Process:
    def __init__(self, name, folder, options):
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        if name.startswith("ztoolkit"):
            weights = name.partition("+")[2] or "plain"
            command = [ZTOOLKIT, "run", ROOT / "bench/peers/infer_vs.lua", folder, "--dtype", options.dtype, "--weights", weights]
        else:
            command = [sys.executable, __file__, "serve", name, folder, "--dtype", options.dtype, "--threads", str(options.threads)]
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=environment)

    def run(self, row):
        self.process.stdin.write(json.dumps(row) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith(("result ", "{")):
                return json.loads(line.removeprefix("result "))
        self.log.seek(0)
        sys.exit(f"infer_vs: the side {self.name} has ended:\n{self.log.read()[-2000:]}")


def rows_of(options):
    random = numpy.random.default_rng(1)
    vocabulary = MODELS[options.model]["vocab_size"]

    def prompts(count, length):
        return random.integers(1, vocabulary, (count, length)).tolist()

    return {"prompt of 512": {"prompts": prompts(1, 512), "tokens": 1},
            "1 answer": {"prompts": prompts(1, 8), "tokens": options.tokens},
            "16 answers": {"prompts": prompts(16, 8), "tokens": options.tokens}}


def has_packages(name):
    missing = [package for package in PACKAGES.get(name, []) if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{name} is left out: there is no package {missing[0]}")
    return not missing


def compare(options, folder):
    write_model(options.model, options.dtype, folder)
    names = [name for name in options.sides if has_packages(name)]
    sides = [Process(name, folder, options) for name in names]
    rows = rows_of(options)
    times = {(row, name): [] for row in rows for name in names}
    for repetition in range(options.repetitions + 1):
        for row, request in rows.items():
            firsts = {}
            for side in sides if repetition % 2 == 0 else reversed(sides):
                result = side.run(request)
                firsts[side.name] = result["first"]
                if repetition > 0:  # the first time warms up
                    times[row, side.name].append(result["seconds"])
            plain = {name: first for name, first in firsts.items() if "+" not in name}
            if options.dtype == "fp32" and len({tuple(first) for first in plain.values()}) > 1:
                sys.exit(f"infer_vs: {row}: the sides generate other tokens: {plain}")
    print(f"{options.model}, {options.dtype}, {options.threads} threads, medians of {options.repetitions}: seconds, and over ztoolkit's")
    for row in rows:
        own = statistics.median(times[row, names[0]])
        cells = [f"{name} {statistics.median(times[row, name]):.3f} ({statistics.median(times[row, name]) / own:.2f})" for name in names]
        print(f"  {row:14} " + "   ".join(cells))


def parser():
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", choices=MODELS, default="gpt_27m")
    made.add_argument("--dtype", choices=DTYPES, default="bf16")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--repetitions", type=int, default=5)
    made.add_argument("--sides", nargs="+", default=["ztoolkit", "transformers", "deepspeed", "ctranslate2"],
                      help="ztoolkit (first; ztoolkit+int8: with packed matrices), transformers, deepspeed, ctranslate2")
    return made


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2:])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            compare(parser().parse_args(), scratch + "/model")
