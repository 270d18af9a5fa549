#!/usr/bin/env python3
"""Compares ztoolkit with DeepSpeed on the CPU: the same GPT, weights and batches, in alternation. Each rank has one thread and
its own core.

    .venv-oracle/bin/python bench/peers/train_vs_deepspeed.py
    .venv-oracle/bin/python bench/peers/train_vs_deepspeed.py --model large --stages 1 3 --repetitions 3

The first use makes .venv-deepspeed: DeepSpeed from PyPI with compiled CPU operators, and the PyTorch of the Python that runs this
script (scripts/setup.sh --oracle makes .venv-oracle). It needs the network, g++ and Python's headers (python3-dev), and takes
minutes.

models: main    6 layers, hidden 512, 8 heads, sequence 256, vocabulary 8192: 27,435,008 parameters; 4 samples per rank
        large  12 layers, hidden 1024, 16 heads, sequence 32, vocabulary 16384: 184,743,936 parameters; 1 sample per rank, so 64
               tokens per step on 2 ranks: shows the cost of communication and optimizer
The head is not tied to the embedding. AdamW (betas 0.9 and 0.95, decay 0.1 of matrices), gradients clipped at norm 1. --layers and
similar options change a model.

Each repetition starts new processes for both sides, for every stage and precision; the sides take turns to run first. It measures
the tokens/s of the steps after the warm-up; the seconds from the start to the end of the first step (of ztoolkit also to its
beginning); and the memory per rank: the peak of the warm-up steps minus the memory before the model was built. Memory is
anonymous and shared pages (Pss: pages that ranks share count once), and the table has the largest of the repetitions; for
ztoolkit also the prediction, which covers parameters, gradients, optimizer states, buckets and activations. The other columns are
medians. The spread is (largest - smallest) / median.

The benchmark fails if the losses show that the sides do not compute the same. The fp32 losses of the first 8 steps must agree
within 1e-5 (eight steps of Adam on gradients that differ by roundings of 2^-24), the first bf16 loss within 2^-8 (one rounding to
bf16). ztoolkit's losses must be equal in every bit for all stages of a precision. The learning rate is small, because an error of
the clipping norm changes the losses in proportion to it: at stage 0 DeepSpeed clips by a norm that PyTorch sums in fp32, with an
error of 1.6e-4 for a matrix of 8192 x 512.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile

import deepspeed_venv
import train_vs

SIDES = {"ours": "ztoolkit", "deepspeed": "DeepSpeed"}  # the names of the sides by --side
MODELS = {
    "main": {"layers": 6, "hidden": 512, "heads": 8, "vocab": 8192, "seq": 256, "micro_batch": 4},
    "large": {"layers": 12, "hidden": 1024, "heads": 16, "vocab": 16384, "seq": 32, "micro_batch": 1},
}
TOLERANCE = {"fp32": 1e-5, "bf16": 2**-8}  # largest relative difference of losses
CHECKED = {"fp32": 8, "bf16": 1}  # number of first steps whose losses are compared
SHOWN = 8  # number of first steps in the tables


def parameters(options):
    """Returns the number of parameters of the untied model."""
    block = 12 * options.hidden**2 + 13 * options.hidden
    return options.layers * block + (2 * options.vocab + options.seq + 2) * options.hidden


def run_side(side, stage, precision, options):
    if side == "ztoolkit":
        ways = [word for name in ("backend", "gemm") if getattr(options, name) for word in (f"--{name}", getattr(options, name))]
        return train_vs.run_ztoolkit(options, "--stage", stage, "--precision", precision, *ways)
    script = train_vs.ROOT / "bench/peers/ranks/train_vs_deepspeed_rank.py"
    command = [options.python, script, "--stage", stage, "--precision", precision, "--config", json.dumps(options.config)]
    return train_vs.run_python(command, options, **deepspeed_venv.variables())


def check_losses(precision, stage, losses, ours):
    """Ends the benchmark if losses differ. `losses` are those of this stage by side. `ours` are ztoolkit's losses at an earlier stage
    of the precision, or None."""
    if ours and losses["ztoolkit"] != ours:
        train_vs.give_up(f"{precision}: ztoolkit's losses at stage {stage} differ from those of an earlier run: "
                         f"{losses['ztoolkit']} and {ours}")
    if len(losses) < 2:
        return
    steps = CHECKED[precision]
    difference = train_vs.largest_difference(losses["ztoolkit"][:steps], losses["DeepSpeed"][:steps])
    if not difference <= TOLERANCE[precision]:
        train_vs.give_up(f"{precision}, stage {stage}: losses of the first {steps} steps differ by {difference:.1e}, more than "
                         f"{TOLERANCE[precision]:.1e}: the two sides do not compute the same. {losses}")


def measure(options):
    """Returns {(precision, stage): {side: [result of each repetition]}}. Checks the losses of every result."""
    sides = [side for choice, side in SIDES.items() if options.side in (choice, "both")]
    cases = [(precision, stage) for precision in options.precision for stage in options.stages]
    results = {case: {side: [] for side in sides} for case in cases}
    ours = {}
    for repetition in range(options.repetitions):
        for precision, stage in cases:
            for side in sides if repetition % 2 == 0 else reversed(sides):
                result = run_side(side, stage, precision, options)
                results[precision, stage][side].append(result)
                print(f"{repetition + 1}/{options.repetitions} {precision} stage {stage} {side:9} "
                      f"{result['tokens_per_second']:7.0f} tokens/s {result['memory'] / 2**20:6.0f} MiB per rank, "
                      f"first step after {result['start_seconds']:.1f} s",
                      file=sys.stderr, flush=True)
            losses = {side: results[precision, stage][side][-1]["losses"] for side in sides}
            check_losses(precision, stage, losses, ours.get(precision))
            ours[precision] = losses.get("ztoolkit")
    return results


def summary(results):
    """Returns one row per case: {precision, stage, side: {tokens_per_second, spread, memory, start_seconds, losses, ...}, ratio,
    difference}."""
    rows = []
    for (precision, stage), sides in results.items():
        row = {"precision": precision, "stage": stage}
        for side, runs in sides.items():
            speeds = [run["tokens_per_second"] for run in runs]
            row[side] = {"tokens_per_second": statistics.median(speeds), "spread": train_vs.spread(speeds),
                         "predicted_memory": runs[0].get("predicted_memory"),
                         "first_step_seconds": statistics.median(run.get("first_step_seconds", 0) for run in runs),
                         "memory": max(run["memory"] for run in runs),
                         "start_seconds": statistics.median(run["start_seconds"] for run in runs), "losses": runs[0]["losses"]}
        if len(sides) == 2:
            ours, theirs = (row[side] for side in SIDES.values())
            row["ratio"] = ours["tokens_per_second"] / theirs["tokens_per_second"]
            row["difference"] = train_vs.largest_difference(ours["losses"][:SHOWN], theirs["losses"][:SHOWN])
        rows.append(row)
    return rows


def speed_table(rows, sides):
    """Returns the speeds, memory and start times as a Markdown table, with neighbouring columns for the two sides."""
    head = ["precision", "stage"] + [f"{side}, tokens/s (spread)" for side in sides] + ["ratio"]
    head += [f"{side}, MiB per rank" + " (predicted)" * (side == "ztoolkit") for side in sides]
    head += [f"{side}, s to the first step's end" + " (beginning)" * (side == "ztoolkit") for side in sides]
    head += ["losses differ by"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        cells = [row["precision"], str(row["stage"])]
        cells += [f"{row[side]['tokens_per_second']:.0f} ({row[side]['spread']:.1%})" for side in sides]
        cells += [f"{row['ratio']:.2f}" if "ratio" in row else ""]
        for side in sides:
            predicted = row[side]["predicted_memory"]
            cells.append(f"{row[side]['memory'] / 2**20:.0f}" + (f" ({predicted / 2**20:.0f})" if predicted else ""))
        for side in sides:
            start, step = row[side]["start_seconds"], row[side]["first_step_seconds"]
            cells.append(f"{start:.1f}" + (f" ({start - step:.1f})" if step else ""))
        lines.append(cells + [f"{row['difference']:.1e}" if "difference" in row else ""])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def loss_table(rows, sides):
    """Returns the losses of the first steps as a Markdown table, with one row per case and side."""
    steps = min(SHOWN, len(rows[0][sides[0]]["losses"]))
    lines = [["precision", "stage", "side"] + [str(step + 1) for step in range(steps)], ["---"] * (steps + 3)]
    for row in rows:
        for side in sides:
            lines.append([row["precision"], str(row["stage"]), side] + [f"{loss:.6f}" for loss in row[side]["losses"][:steps]])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def compare(options):
    train_vs.write_batches(options)
    train_vs.export_parameters(options)
    if options.side != "ours":
        options.python = deepspeed_venv.deepspeed_python()
    results = measure(options)
    rows, sides = summary(results), list(next(iter(results.values())))
    setting = {name: getattr(options, name) for name in ("model", *MODELS["main"], "ranks", "steps", "warmup", "repetitions", "lr")}
    setting["parameters"] = parameters(options)
    if options.json:
        print(json.dumps({"setting": setting, "rows": rows}, indent=1))
        return
    print(f"{options.model}: {parameters(options):,} parameters, {options.ranks} rank(s), {options.repetitions} repetition(s) of "
          f"{options.steps - options.warmup} timed steps of {options.batch} x {options.seq} tokens\n")
    print(speed_table(rows, sides), loss_table(rows, sides), sep="\n\n")


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="main", help="the defaults of --layers and similar options (main)")
    for name, what in (("layers", "blocks"), ("hidden", "width"), ("heads", "attention heads"), ("vocab", "tokens"),
                       ("seq", "tokens per sample"), ("micro_batch", "samples per rank and step")):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=what)
    parser.add_argument("--stages", type=int, nargs="+", choices=range(4), default=[0, 1, 2, 3], help="ZeRO stages (0 1 2 3)")
    parser.add_argument("--precision", nargs="+", choices=TOLERANCE, default=["fp32", "bf16"], help="precisions (fp32 bf16)")
    parser.add_argument("--side", choices=(*SIDES, "both"), default="both", help="the sides to measure (both)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--oversubscribe", action="store_true", help="ranks may share cores: memory is valid, times are not")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--steps", type=int, default=13, help="steps per run (13)")
    parser.add_argument("--warmup", type=int, default=3, help="untimed first steps, in which memory is measured (3)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate (1e-4)")
    parser.add_argument("--backend", help="how ztoolkit's ranks communicate, shm or mpi; default: what suits the ranks")
    parser.add_argument("--gemm", help="ztoolkit's GEMM provider, aten, mkl or skinny; default: the default rule")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides DeepSpeed's configuration")
    parser.add_argument("--json", action="store_true", help="print JSON with all losses instead of tables")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    for name, value in MODELS[options.model].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    train_vs.check_warmup(parser, options)
    return options


def main():
    options = parse()
    options.tied, options.batch = False, options.micro_batch * options.ranks
    train_vs.check_ranks(options)
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        compare(options)


if __name__ == "__main__":
    main()
