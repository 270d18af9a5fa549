#!/usr/bin/env python3
"""Compares simulated steps with published runs without tensor or pipeline parallelism.

    python3 bench/plans/published_runs.py [--only NAME] [--json]

Each row plans the model of a publication on its machines (`ztoolkit plan --costs`) and prints the tokens per second and GPU that
were published, those that the simulation gives, and their ratio.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ZTOOLKIT = os.environ.get("ZTOOLKIT", os.path.join(TOP, "build/release/bin/ztoolkit"))

# The models: options of gpt.lua. MPT of MosaicML's llm-foundry (GPT-2 like, vocabulary 50,368), Llama, and Megatron's GPT-2.
MPT = {"vocab": 50368}
MODELS = {
    "MPT 1B": {**MPT, "layers": 24, "hidden": 2048, "heads": 16},
    "MPT 3B": {**MPT, "layers": 32, "hidden": 2560, "heads": 20},
    "MPT 7B": {**MPT, "layers": 32, "hidden": 4096, "heads": 32},
    "MPT 13B": {**MPT, "layers": 40, "hidden": 5120, "heads": 40},
    "MPT 30B": {**MPT, "layers": 48, "hidden": 7168, "heads": 56},
    "MPT 70B": {**MPT, "layers": 80, "hidden": 8192, "heads": 64},
    "Llama-2 7B": {"family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000},
    "Llama-3 8B": {"family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 128256},
    "Llama-3 70B": {"family": "llama", "layers": 80, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 128256},
    "GPT-2 1.2B": {"layers": 40, "hidden": 1536, "heads": 16, "vocab": 51200},
}
FOUNDRY = "MosaicML llm-foundry, scripts/train/benchmarking"
IBM = "Maximizing training throughput using PyTorch FSDP (PyTorch blog, 2024)"
TITAN = "torchtitan, docs/performance.md"
MEGATRON = "MegatronLM's supercharged V1.0 (NVIDIA ADLR, 2019)"

# model, machine, GPUs, tokens per sample, samples per GPU and micro-batch, micro-batches, recomputed blocks, tokens per second and
# GPU as published, source.
RUNS = [
    ("MPT 7B", "a100", 8, 2048, 6, 2, False, 4641, FOUNDRY),
    ("MPT 7B", "a100", 16, 2048, 16, 1, True, 3645, FOUNDRY),
    ("MPT 7B", "a100", 128, 2048, 18, 1, True, 3623, FOUNDRY),
    ("MPT 3B", "a100", 128, 2048, 6, 1, False, 9538, FOUNDRY),
    ("MPT 13B", "a100", 128, 2048, 16, 1, True, 1972, FOUNDRY),
    ("MPT 30B", "a100", 128, 2048, 6, 1, True, 865, FOUNDRY),
    ("MPT 70B", "a100", 128, 2048, 4, 1, True, 376, FOUNDRY),
    ("MPT 70B", "a100", 64, 2048, 2, 1, True, 276, FOUNDRY),
    ("Llama-2 7B", "a100", 128, 4096, 2, 1, False, 3700, IBM),
    ("Llama-3 8B", "a100", 64, 8192, 1, 1, False, 2904, TITAN),
    ("Llama-3 70B", "a100", 64, 8192, 1, 1, True, 331, TITAN),
    ("MPT 7B", "h100", 8, 2048, 6, 1, False, 10643, FOUNDRY),
    ("MPT 13B", "h100", 64, 2048, 2, 1, False, 4800, FOUNDRY),
    ("MPT 3B", "h100", 64, 2048, 6, 3, False, 22525, FOUNDRY),
    ("MPT 1B", "h100", 64, 2048, 20, 1, False, 44402, FOUNDRY),
    ("MPT 30B", "h100", 32, 2048, 14, 3, True, 2308, FOUNDRY),
    ("MPT 70B", "h100", 64, 2048, 8, 4, True, 1039, FOUNDRY),
    ("GPT-2 1.2B", "v100", 1, 1024, 8, 1, False, 6361, MEGATRON),
]


def plan(run):
    model, machine, gpus, seq, samples, micro_batches, recomputes, _, _ = run
    words = [ZTOOLKIT, "plan", "--json", "--ranks", str(gpus), "--costs", machine,
             os.path.join(TOP, "bench/plans/gpt.lua"), "--seq", str(seq), "--samples", str(samples),
             "--micro_batches", str(micro_batches), "--recompute", "1" if recomputes else "0",
             "--precision", "fp16" if machine == "v100" else "bf16", "--stage", "3" if gpus > 1 else "0"]
    for name, value in MODELS[model].items():
        words += ["--" + name, str(value)]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    simulation = json.loads(done.stdout)["simulation"]
    return {"tokens": simulation["work"]["tokens"] / simulation["seconds"] / gpus, "mfu": simulation["work"].get("mfu", 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose model or machine contains this text")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = []
    for run in RUNS:
        if options.only and options.only not in f"{run[0]} {run[1]}":
            continue
        found = plan(run)
        rows.append({"model": run[0], "machine": run[1], "gpus": run[2], "published": run[7], "simulated": found["tokens"],
                     "mfu": found["mfu"], "ratio": found["tokens"] / run[7], "recompute": run[6], "source": run[8]})
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("| model | GPUs | blocks recomputed | tokens/s per GPU, published | simulated | simulated / published | simulated MFU | source |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['model']} | {row['gpus']} {row['machine'].upper()} | {'all' if row['recompute'] else 'none'} | "
              f"{row['published']:,} | {row['simulated']:,.0f} | {row['ratio']:.2f} | {100 * row['mfu']:.0f} % | {row['source']} |")


if __name__ == "__main__":
    main()
