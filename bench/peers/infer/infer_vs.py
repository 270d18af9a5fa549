#!/usr/bin/env python3
"""Measures how fast ztoolkit, transformers, DeepSpeed's init_inference, ctranslate2 and llama.cpp generate, with the same random
model, in alternation.

    .venv-peers/bin/python bench/peers/infer/infer_vs.py                          a GPT-2 of 27.4 M parameters, bf16
    .venv-peers/bin/python bench/peers/infer/infer_vs.py --model llama_1b --sides ztoolkit ztoolkit+int8 llama_cpp llama_cpp+int8

Each side is a process that loads the model once, and answers the rows in turns: a prompt of 512 tokens with one token of answer;
one answer of --tokens tokens; 16 answers at once. All draw the likeliest token. SIDE+FORMAT has packed matrices: ztoolkit and
llama_cpp take int8 and int4, ctranslate2 takes int8. A side whose package is missing is left out, and a line says so. Prints the
median seconds of each side, and its time over the time of ztoolkit with the same format.

In fp32 the benchmark fails if the tokens of two sides with plain matrices differ, unless the model gives both tokens the same
logit up to rounding. Then a line says so. Each side holds the model: in fp32 llama_1b takes 3.5 GB per side with plain matrices.
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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import needs

needs.packages("numpy", "torch", "transformers", environment=".venv-peers")

import numpy
import torch

import equal_tokens
import sides

ROOT = pathlib.Path(__file__).resolve().parents[3]
ZTOOLKIT = ROOT / "build/release/bin/ztoolkit"
MODELS = {
    "gpt_27m": dict(kind="gpt2", n_layer=8, n_embd=512, n_head=8, vocab_size=4096, n_positions=1024),
    "llama_1b": dict(kind="llama", num_hidden_layers=16, hidden_size=2048, intermediate_size=5632, num_attention_heads=32,
                     num_key_value_heads=8, vocab_size=32000, max_position_embeddings=1024),
}
# By side: the packages it needs, and the formats after "+" that it has.
PACKAGES = {"ztoolkit": [], "transformers": ["transformers"], "deepspeed": ["deepspeed", "transformers"],
            "ctranslate2": ["ctranslate2", "transformers"], "llama_cpp": ["llama_cpp", "gguf"]}
FORMATS = {"ztoolkit": ["panels", "int8", "int4", "nf4"], "ctranslate2": ["int8"], "llama_cpp": ["int8", "int4"]}


def write_model(name, dtype, folder):
    """Writes a random model as transformers writes it."""
    import transformers

    options = dict(MODELS[name])
    kind = options.pop("kind")
    torch.manual_seed(1)
    ends = dict(bos_token_id=0, eos_token_id=0)
    config = transformers.GPT2Config(**options, **ends) if kind == "gpt2" else transformers.LlamaConfig(**options, **ends)
    model = transformers.AutoModelForCausalLM.from_config(config).to(sides.DTYPES[dtype])
    model.save_pretrained(folder)


def parts(name):
    """Splits SIDE+FORMAT. Without a format the matrices are plain."""
    side, _, weights = name.partition("+")
    return side, weights or "plain"


def child_command(action, name, folder, options):
    """The command that runs `convert` or `serve` in a process of its own."""
    return list(map(str, [sys.executable, __file__, action, name, folder, "--dtype", options.dtype, "--threads", options.threads,
                          "--tokens", options.tokens]))


def convert(name, folder, options):
    """Writes what a side needs beside the model. Its memory is free again when the sides start."""
    if parts(name)[0] == "ztoolkit":
        return
    done = subprocess.run(child_command("convert", name, folder, options), stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"infer_vs: the side {name} cannot convert the model:\n{done.stderr[-2000:]}")


def child(arguments):
    """Runs `convert`, or `serve`: a side that reads rows, and answers them."""
    action, name, folder = arguments[:3]
    options = parser().parse_args(arguments[3:])
    torch.set_num_threads(options.threads)
    kind, weights = parts(name)
    made = sides.side_of(kind)
    if action == "convert":
        made.convert(folder, options, weights)
        return
    side = made(folder, options, weights)
    for line in sys.stdin:
        row = json.loads(line)
        begin = time.monotonic()
        first = side.generate(row["prompts"], row["tokens"])
        print("result " + json.dumps({"seconds": time.monotonic() - begin, "first": first}), flush=True)


class Process:
    def __init__(self, name, folder, options):
        environment = dict(os.environ, OMP_NUM_THREADS=str(options.threads))
        kind, weights = parts(name)
        if kind == "ztoolkit":
            command = [ZTOOLKIT, "run", ROOT / "bench/peers/infer/infer_vs.lua", folder, "--dtype", options.dtype, "--weights", weights]
        else:
            command = child_command("serve", name, folder, options)
        self.name = name
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, env=environment)

    def run(self, row):
        try:
            self.process.stdin.write(json.dumps(row) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the side has ended, and the log says why
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


def is_available(name):
    missing = [package for package in PACKAGES[parts(name)[0]] if importlib.util.find_spec(package) is None]
    if missing:
        print(f"{name} is left out: there is no package {missing[0]}: run `scripts/setup.sh --peers`, and use .venv-peers/bin/python")
    return not missing


def measure(names, folder, options):
    """Returns the seconds of each repetition, by (row, side)."""
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
            plain = {name: firsts[name] for name in names if "+" not in name}
            if options.dtype == "fp32" and plain:
                equal_tokens.require_equal(row, request["prompts"][0], plain, folder)
    return times


def print_table(names, times, options):
    """Prints a line per side: seconds, and in brackets the time over that of ztoolkit with the same format."""
    rows = list(rows_of(options))
    medians = {key: statistics.median(seconds) for key, seconds in times.items()}
    print(f"{options.model}, {options.dtype}, {options.threads} threads, medians of {options.repetitions}: seconds, and in "
          "brackets the time over that of ztoolkit with the same format")
    print(f"  {'':20}" + "".join(f"{row:>14}{'':8}" for row in rows).rstrip())
    for name in names:
        own = name.replace(parts(name)[0], "ztoolkit", 1)
        cells = []
        for row in rows:
            has_ratio = own != name and own in names
            ratio = f" ({medians[row, name] / medians[row, own]:.2f})" if has_ratio else ""
            cells.append(f"{medians[row, name]:14.4f}{ratio:8}")
        print(f"  {name:20}" + "".join(cells).rstrip())


def compare(options, folder):
    names = [name for name in options.sides if is_available(name)]
    write_model(options.model, options.dtype, folder)
    for name in names:
        convert(name, folder, options)
    print_table(names, measure(names, folder, options), options)


def side_name(text):
    """Checks SIDE or SIDE+FORMAT of the command line."""
    side, weights = parts(text)
    if side not in PACKAGES:
        raise argparse.ArgumentTypeError(f"there is no side '{side}': give {', '.join(PACKAGES)}")
    if weights != "plain" and weights not in FORMATS.get(side, []):
        known = " or ".join(FORMATS.get(side, []))
        raise argparse.ArgumentTypeError(f"'{side}' has no format '{weights}' here: give {known or 'the side alone'}")
    return text


def parser():
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--model", choices=MODELS, default="gpt_27m")
    made.add_argument("--dtype", choices=sides.DTYPES, default="bf16")
    made.add_argument("--threads", type=int, default=2)
    made.add_argument("--tokens", type=int, default=64)
    made.add_argument("--repetitions", type=int, default=5)
    made.add_argument("--sides", nargs="+", type=side_name, metavar="SIDE[+FORMAT]",
                      default=["ztoolkit", "transformers", "deepspeed", "ctranslate2", "llama_cpp"],
                      help="ztoolkit, transformers, deepspeed, ctranslate2, llama_cpp; +int8 or +int4: with packed matrices")
    return made


if __name__ == "__main__":
    if sys.argv[1:2] in (["convert"], ["serve"]):
        child(sys.argv[1:])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            compare(parser().parse_args(), scratch + "/model")
