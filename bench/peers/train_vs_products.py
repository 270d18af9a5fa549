#!/usr/bin/env python3
"""Training steps beside nothing but their products of matrices, and two ranks beside one, in alternation.

    .venv-oracle/bin/python bench/peers/train_vs_products.py

The model, the batches and the options are those of train_vs_deepspeed.py. A repetition runs, one after the other: the products
that a step makes, alone (products_bench: same shapes, in linear layers and the head by the same provider), in one process and in
as many at a time as ranks; a rank alone at stage 0; the ranks at each stage. A step's share of products is the time of the
products of as many processes by the step's, with and without those of attention; the ranks' efficiency is their tokens/s by as
many times those of the rank alone, with as many samples a rank. Medians; the spread is (largest - smallest) / median.
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


def seconds_of_products(precision, options, ranks):
    """{("linear", ranks), ("products", ranks): with attention's}: of one pass, the median; processes on cores of their own."""
    command = [options.ztoolkit.parent.parent / "bench/products_bench", DTYPES[precision], options.layers, options.hidden,
               options.heads, options.vocab, options.seq, options.micro_batch, options.seconds]

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
    """`options` for so many ranks, with batches of their own."""
    own = copy.copy(options)
    own.ranks, own.batch = ranks, ranks * options.micro_batch
    own.folder = options.folder / str(ranks)
    own.folder.mkdir()
    train_vs.write_batches(own)
    return own


def measure(precision, options, alone, together):
    """[{("linear", ranks): seconds, ("products", ranks):, "alone":, stage:}], one a repetition: of a pass or a step."""
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

    names = {("linear", ranks): f"products of linear layers, {ranks} at a time" for ranks in (1, options.ranks)}
    names.update((("products", ranks), f"all products, {ranks} at a time") for ranks in (1, options.ranks))
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
    parser.add_argument("--stages", type=int, nargs="+", choices=range(4), default=[0, 1, 2, 3], help="of ZeRO (0 1 2 3)")
    parser.add_argument("--precision", nargs="+", choices=DTYPES, default=list(DTYPES), help="(fp32 bf16)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--repetitions", type=int, default=5, help="of everything (5)")
    parser.add_argument("--seconds", type=int, default=8, help="that products run alone, in each repetition (8)")
    parser.add_argument("--steps", type=int, default=11, help="steps of a run (11)")
    parser.add_argument("--warmup", type=int, default=2, help="first steps, not timed (2)")
    parser.add_argument("--backend", help="how our ranks communicate, shm or mpi; what suits them unless given")
    parser.set_defaults(gemm=None)  # the products alone are the default rule's
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    vars(options).update(MODELS["main"], tied=False, lr=1e-4, batch=options.ranks)
    train_vs.check_ranks(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        alone, together = of_ranks(options, 1), of_ranks(options, options.ranks)
        rows = [["", "", "ms (spread)", "share of products", "of linear layers' alone", "efficiency"], ["---"] * 6]
        for precision in options.precision:
            rows += table(precision, measure(precision, options, alone, together), options)
    print("\n".join("| " + " | ".join(row) + " |" for row in rows))


if __name__ == "__main__":
    main()
