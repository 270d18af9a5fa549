#!/usr/bin/env python3
"""Compares simulated steps with published runs.

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
    "GPT-3 76B": {"layers": 60, "hidden": 10240, "heads": 80, "vocab": 51200},
    "GPT-3 175B": {"layers": 96, "hidden": 12288, "heads": 96, "vocab": 51200},
    "Mixtral 8x7B": {"family": "llama", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8, "ffn": 14336, "vocab": 32000,
                     "experts": 8, "top_k": 2},
    "GPT-2 1.2B": {"layers": 40, "hidden": 1536, "heads": 16, "vocab": 51200},
    "GPT-2 1.5B": {"layers": 48, "hidden": 1600, "heads": 16, "vocab": 50304},
    "GPT-2 13B": {"layers": 40, "hidden": 5120, "heads": 40, "vocab": 50304},
}
# The machines that are not in the list of `ztoolkit plan --costs`: its name there, and what differs.
MACHINES = {
    "Azure's V100": ("v100", {"ranks_per_machine": 8, "cards_per_machine": 1}),  # Standard_ND40rs_v2
}


def ptd_tokens(model, teraflops):
    """Returns the tokens per second of a GPU that is said to reach so many TFLOP/s by formula (3) of Narayanan et al. 2021, which
    counts what is recomputed and all of causal attention."""
    layers, hidden = MODELS[model]["layers"], MODELS[model]["hidden"]
    flops = 96 * layers * hidden**2 * (1 + 2048 / (6 * hidden) + MODELS[model]["vocab"] / (16 * layers * hidden))
    return round(teraflops * 1e12 / flops)


# The operations per token of Mixtral 8x7B as Megatron-LM counts them (num_floating_point_operations), with all of causal attention:
# three passes, each of two operations per multiplication.
MIXTRAL_FLOPS = 6 * (32 * (2 * 4096**2 + 2 * 4096 * 1024 + 2 * 3 * 4096 * 14336 + 2 * 4096 * 4096) + 4096 * 32000)
FOUNDRY = "MosaicML llm-foundry, scripts/train/benchmarking"
IBM = "Maximizing training throughput using PyTorch FSDP (PyTorch blog, 2024)"
TITAN = "torchtitan, docs/performance.md"
MEGATRON = "MegatronLM's supercharged V1.0 (NVIDIA ADLR, 2019)"
DEEPSPEED = "DeepSpeed, docs/_tutorials/azure.md (2020): 100,000 steps of 1,536 samples in less than 2 weeks"
ZERO = "ZeRO (SC 2020), section 10.4: up to 13B on 128 GPUs at over 40 TFLOP/s each, which count what is recomputed"
PTD = "Narayanan et al., Efficient Large-Scale Language Model Training on GPU Clusters (SC 2021)"
ASYNC_TP = "torchtitan, benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md"
MCORE_MOE = "Megatron-LM, megatron/core/transformer/moe/README.md (2025)"

# model, machine, GPUs, ZeRO stage, tokens per sample, samples per GPU and micro-batch, micro-batches, whether all blocks are
# recomputed, tokens per second and GPU as published, source. Those of "GPT-2 1.5B" and "GPT-2 13B" are bounds from below,
# and their samples per GPU and micro-batch are guesses.
RUNS = [
    ("MPT 7B", "a100", 8, 3, 2048, 6, 2, False, 4641, FOUNDRY),
    ("MPT 7B", "a100", 16, 3, 2048, 16, 1, True, 3645, FOUNDRY),
    ("MPT 7B", "a100", 128, 3, 2048, 18, 1, True, 3623, FOUNDRY),
    ("MPT 3B", "a100", 128, 3, 2048, 6, 1, False, 9538, FOUNDRY),
    ("MPT 13B", "a100", 128, 3, 2048, 16, 1, True, 1972, FOUNDRY),
    ("MPT 30B", "a100", 128, 3, 2048, 6, 1, True, 865, FOUNDRY),
    ("MPT 70B", "a100", 128, 3, 2048, 4, 1, True, 376, FOUNDRY),
    ("MPT 70B", "a100", 64, 3, 2048, 2, 1, True, 276, FOUNDRY),
    ("Llama-2 7B", "a100", 128, 3, 4096, 2, 1, False, 3700, IBM),
    ("Llama-3 8B", "a100", 64, 3, 8192, 1, 1, False, 2904, TITAN),
    ("Llama-3 70B", "a100", 64, 3, 8192, 1, 1, True, 331, TITAN),
    ("MPT 7B", "h100", 8, 3, 2048, 6, 1, False, 10643, FOUNDRY),
    ("MPT 13B", "h100", 64, 3, 2048, 2, 1, False, 4800, FOUNDRY),
    ("MPT 3B", "h100", 64, 3, 2048, 6, 3, False, 22525, FOUNDRY),
    ("MPT 1B", "h100", 64, 3, 2048, 20, 1, False, 44402, FOUNDRY),
    ("MPT 30B", "h100", 32, 3, 2048, 14, 3, True, 2308, FOUNDRY),
    ("MPT 70B", "h100", 64, 3, 2048, 8, 4, True, 1039, FOUNDRY),
    ("GPT-2 1.2B", "v100", 1, 0, 1024, 8, 1, True, 6361, MEGATRON),
    ("GPT-2 1.5B", "Azure's V100", 64, 1, 1024, 12, 2, True, 2032, DEEPSPEED),
    ("GPT-2 13B", "v100", 128, 2, 1024, 4, 1, True, 385, ZERO),
    ("GPT-3 175B", "a100", 384, 3, 2048, 4, 1, True, ptd_tokens("GPT-3 175B", 144), PTD + ", table 2"),
]


# Runs whose ranks share matrices, layers or experts: model, machine, GPUs, ZeRO stage, tokens per sample, samples per data-parallel
# rank and micro-batch, micro-batches, whether all blocks are recomputed, tokens per second and GPU as published, source; other
# options of gpt.lua.
def ptd(model, gpus, pp, batch, chunks, teraflops, source):
    """Returns a run of Megatron-LM in 2021: tensor parallelism inside a machine, an interleaved pipeline, one sample per micro-batch."""
    return (model, "a100", gpus, 0, 2048, 1, batch * 8 * pp // gpus, True, ptd_tokens(model, teraflops), f"{PTD}, {source}",
            {"tp": 8, "pp": pp, "chunks": chunks})


# The number of chunks is a guess: the paper says that the schedule is interleaved.
SHARED_RUNS = [
    ptd("GPT-3 76B", 1024, 4, 1792, 3, 140, "table 1"),
    ptd("GPT-3 175B", 384, 12, 1536, 2, 153, "table 2"),
    ptd("GPT-3 175B", 768, 12, 1536, 2, 149, "table 2"),
    ptd("GPT-3 175B", 1536, 12, 1536, 2, 141, "table 2"),
    ("Llama-3 70B", "h100", 256, 3, 8192, 16, 1, True, 597, ASYNC_TP, {"tp": 8, "sequence_parallel": True}),
    ("Llama-3 8B", "h100", 64, 3, 8192, 12, 1, False, 4378, ASYNC_TP, {"tp": 8, "sequence_parallel": True, "selective": True}),
    ("Mixtral 8x7B", "h100", 64, 1, 4096, 1, 16, False, round(468e12 / MIXTRAL_FLOPS), MCORE_MOE, {"ep": 8, "pp": 4, "chunks": 8}),
]


def run_command(words, folder):
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)} failed:\n{done.stderr}")
    return done.stdout


def costs_of(machine, folder):
    """Returns what --costs gets for a machine: a name, or the path of a file in `folder`."""
    if machine not in MACHINES:
        return machine
    name, changes = MACHINES[machine]
    script = os.path.join(folder, "costs.lua")
    with open(script, "w", encoding="utf8") as file:
        file.write(f'local zt = require "zt" print(zt.json.encode(zt.costs "{name}"))\n')
    costs = json.loads(run_command([ZTOOLKIT, "run", script], folder))
    costs["hardware"].update(changes)
    path = os.path.join(folder, "costs.json")
    with open(path, "w", encoding="utf8") as file:
        json.dump(costs, file)
    return path


def layout_of(run):
    return run[10] if len(run) > 10 else {}


def described(run):
    """Returns the layout of a run's ranks in words."""
    layout = layout_of(run)
    sizes = [f"{name} {layout[name]}" for name in ("tp", "pp", "ep") if layout.get(name, 1) > 1]
    sizes.append(f"dp {run[2] // (layout.get('tp', 1) * layout.get('pp', 1) * layout.get('ep', 1))}")
    return " x ".join(sizes)


def recomputed(run):
    if run[7]:
        return "blocks"
    return "selective" if layout_of(run).get("selective") else "none"


def plan(run):
    model, machine, gpus, stage, seq, samples, micro_batches, recomputes = run[:8]
    with tempfile.TemporaryDirectory() as folder:
        words = [ZTOOLKIT, "plan", "--json", "--ranks", str(gpus), "--costs", costs_of(machine, folder),
                 os.path.join(TOP, "bench/plans/gpt.lua"), "--seq", str(seq), "--samples", str(samples),
                 "--micro_batches", str(micro_batches), "--recompute", "1" if recomputes else "0",
                 "--precision", "fp16" if "v100" in machine.lower() else "bf16", "--stage", str(stage)]
        for name, value in {**MODELS[model], **layout_of(run)}.items():
            words += ["--" + name] + ([] if value is True else [str(value)])
        simulation = json.loads(run_command(words, folder))["simulation"]
    return {"tokens": simulation["work"]["tokens"] / simulation["seconds"] / gpus, "mfu": simulation["work"].get("mfu", 0),
            "memory": max(rank["peak_bytes"] for rank in simulation["ranks"])}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose model or machine contains this text")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    rows = []
    for run in RUNS + SHARED_RUNS:
        if options.only and options.only not in f"{run[0]} {run[1]}":
            continue
        found = plan(run)
        rows.append({"model": run[0], "machine": run[1], "gpus": run[2], "layout": described(run), "published": run[8], "simulated": found["tokens"],
                     "mfu": found["mfu"], "memory": found["memory"], "ratio": found["tokens"] / run[8], "recompute": recomputed(run), "source": run[9]})
    if options.json:
        print(json.dumps(rows, indent=1))
        return
    print("| model | GPUs | ranks | recomputed | tokens/s per GPU, published | simulated | simulated / published | simulated MFU | GiB | source |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row['model']} | {row['gpus']} {row['machine'][:1].upper() + row['machine'][1:]} | {row['layout']} | {row['recompute']} | "
              f"{row['published']:,} | {row['simulated']:,.0f} | {row['ratio']:.2f} | {100 * row['mfu']:.0f} % | "
              f"{row['memory'] / 2**30:.0f} | {row['source']} |")


if __name__ == "__main__":
    main()
