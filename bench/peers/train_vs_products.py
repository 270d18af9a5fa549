#!/usr/bin/env python3
"""Compares training steps with their GEMMs alone, and several ranks with one rank, in alternation.

    .venv-oracle/bin/python bench/peers/train_vs_products.py

The model, the batches and the options are those of train_vs_deepspeed.py. Each repetition runs in this order: the GEMMs of a step
alone (products_bench: the same shapes; in linear layers and the head also the same provider), in one process and in --ranks
processes at the same time; one rank at stage 0; all ranks at each stage. The share of GEMMs is the time of the GEMMs in as many
processes, divided by the time of the step, with and without the GEMMs of attention. The efficiency is the tokens/s of the ranks
divided by (number of ranks x tokens/s of one rank), with the same number of samples per rank. All values are medians; the spread
is (largest - smallest) / median.
"""

import argparse
import concurrent.futures
import copy
import json
import pathlib
import statistics
import subprocess
import tempfile

import train_vs
from train_vs_deepspeed import MODELS, run_side

DTYPES = {"fp32": "float32", "bf16": "bfloat16"}


def seconds_of_products(precision, options, ranks, parts=1):
    """Returns the median seconds of one pass with `ranks` processes, each on its own core: {("linear", ranks): linear layers and
    head, ("products", ranks): all GEMMs}. Each process has one of `parts` of the matrices."""
    command = [options.ztoolkit.parent.parent / "bench/products_bench", DTYPES[precision], options.layers, options.hidden,
               options.heads, options.vocab, options.seq, options.micro_batch, options.seconds, parts]

    def passes(core):
        words = ["taskset", "--cpu-list", str(core), *map(str, command)]
        done = subprocess.run(words, env=train_vs.environment(), check=True, stdout=subprocess.PIPE, timeout=options.timeout)
        return json.loads(done.stdout)

    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        processes = list(pool.map(passes, train_vs.cores()[:ranks]))
    linear, attention = (statistics.median(seconds for times in processes for seconds in times[kind])
                         for kind in ("linear", "attention"))
    return {("linear", ranks): linear, ("products", ranks): linear + attention}


def of_ranks(options, ranks):
    """Returns a copy of `options` for `ranks` ranks, with its own folder, and writes its batches."""
    own = copy.copy(options)
    own.ranks, own.batch = ranks, ranks * options.micro_batch
    own.folder = options.folder / str(ranks)
    own.folder.mkdir()
    train_vs.write_batches(own)
    return own


def measure(precision, options, alone, together):
    """Returns a list with one table per repetition. Each holds the seconds of a pass or of a step: {("linear", ranks): ...,
    ("products", ranks): ..., "alone": ..., stage: ...}."""
    repetitions = []

    def seconds_of_step(stage, case):
        return case.batch * case.seq / run_side("ztoolkit", stage, precision, case)["tokens_per_second"]

    for _ in range(options.repetitions):
        times = {**seconds_of_products(precision, options, 1), **seconds_of_products(precision, options, options.ranks)}
        times["alone"] = seconds_of_step(0, alone)
        times.update((stage, seconds_of_step(stage, together)) for stage in options.stages)
        repetitions.append(times)
    return repetitions


def table(precision, repetitions, options):
    def median_of(ratio):
        return f"{statistics.median(ratio(times) for times in repetitions):.2f}"

    names = {("linear", ranks): f"GEMMs of linear layers, {ranks} process(es)" for ranks in (1, options.ranks)}
    names.update((("products", ranks), f"all GEMMs, {ranks} process(es)") for ranks in (1, options.ranks))
    names["alone"] = "1 rank"
    names.update((stage, f"{options.ranks} ranks, stage {stage}") for stage in options.stages)
    rows = []
    for name, title in names.items():
        seconds = [times[name] for times in repetitions]
        row = [precision, title, f"{1000 * statistics.median(seconds):.0f} ({train_vs.spread(seconds):.0%})"]
        ranks = 1 if name == "alone" else options.ranks
        row += ["" if isinstance(name, tuple) else median_of(lambda times: times[part, ranks] / times[name])
                for part in ("products", "linear")]
        rows.append(row + [median_of(lambda times: times["alone"] / times[name]) if name in options.stages else ""])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stages", type=int, nargs="+", choices=range(4), default=[0, 1, 2, 3], help="ZeRO stages (0 1 2 3)")
    parser.add_argument("--precision", nargs="+", choices=DTYPES, default=list(DTYPES), help="precisions (fp32 bf16)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--seconds", type=int, default=8, help="seconds of the GEMMs alone, per repetition (8)")
    parser.add_argument("--steps", type=int, default=11, help="steps per run (11)")
    parser.add_argument("--warmup", type=int, default=2, help="untimed first steps (2)")
    parser.add_argument("--backend", help="how the ranks communicate, shm or mpi; default: the backend that suits the ranks")
    parser.set_defaults(gemm=None)  # products_bench uses the default rule, so the steps must use it too
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    vars(options).update(MODELS["main"], tied=False, lr=1e-4, batch=options.ranks)
    train_vs.check_ranks(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        alone, together = of_ranks(options, 1), of_ranks(options, options.ranks)
        rows = [["", "", "ms (spread)", "share of GEMMs", "share of linear layers' GEMMs", "efficiency"], ["---"] * 6]
        for precision in options.precision:
            rows += table(precision, measure(precision, options, alone, together), options)
    print("\n".join("| " + " | ".join(row) + " |" for row in rows))


if __name__ == "__main__":
    main()
