#!/usr/bin/env python3
"""Compares ztoolkit with DeepSpeed on models with experts, on the CPU: the same weights and batches, in alternation. Each rank has
one thread and its own core.

    .venv-oracle/bin/python bench/peers/moe_vs_deepspeed.py
    .venv-oracle/bin/python bench/peers/moe_vs_deepspeed.py --models dense top1 --stages 2 --precision bf16

models: dense  6 blocks, hidden 512, 8 heads, vocabulary 8192, sequence 128, not tied: 27,369,472 parameters
        top1   the same with 4 experts in the blocks 1, 3 and 5, each like the dense MLP, one per token: equal cost per token
        top2   the same with two experts per token

The ranks share the experts (expert parallelism), and the samples: 4 per rank and step. On DeepSpeed's side the experts are
deepspeed.moe.layer.MoE, with the options with which both sides compute the same: no noise, no sampling of the second expert, no
random token selection, and no token is dropped. DeepSpeed then sends as many rows to each expert as the fullest one gets, some of
them zeros; ztoolkit sends the rows that there are. The balancing loss has the weight 0.01. DeepSpeed refuses its experts at ZeRO
stage 3, so ztoolkit runs there alone. Both sides compute the gradient's norm, but nothing is clipped, because DeepSpeed's norm is
another one if there are experts: the ranks average their norms, each over the rank's own experts. AdamW, DeepSpeed's version and
its further settings are those of train_vs_deepspeed.py.

Each repetition starts new processes for every case; the sides take turns to run first. The tables have medians of the tokens/s
after the warm-up, and (largest - smallest) / median as the spread.

The benchmark fails unless the losses agree: in fp32 those of the first eight steps within 1e-5, in bf16 the first within 2^-8, as
in train_vs_deepspeed.py. ztoolkit's losses must be equal in every bit for all stages of a precision.
"""

import argparse
import copy
import json
import pathlib
import statistics
import sys
import tempfile

import deepspeed_venv
import train_vs

SIDES = {"ours": "ztoolkit", "deepspeed": "DeepSpeed"}  # the names of the sides by --side
TOP_K = {"dense": 0, "top1": 1, "top2": 2}  # experts per token, by model
CHECKS = {"fp32": (8, 1e-5), "bf16": (1, 2**-8)}  # number of first steps, largest relative difference of their losses


def expert_arguments(model, options):
    """Returns the arguments of both sides for the experts of a model."""
    if TOP_K[model] == 0:
        return []
    return ["--experts", str(options.experts), "--top_k", str(TOP_K[model]), "--aux_loss", str(options.aux_loss)]


def run_side(side, case, options):
    precision, model, stage = case
    arguments = ["--stage", str(stage), "--precision", precision, *expert_arguments(model, options)]
    if side == "ztoolkit":
        return train_vs.run_ztoolkit(options, *arguments, "--clip", str(options.clip))
    script = "moe_vs_deepspeed_rank.py" if TOP_K[model] else "train_vs_deepspeed_rank.py"
    command = [options.python, train_vs.ROOT / "bench/peers/ranks" / script, *arguments,
               "--config", json.dumps({"gradient_clipping": options.clip, **options.config})]
    return train_vs.run_python(command, options, **deepspeed_venv.variables())


def check_losses(case, losses, ours):
    """Ends the benchmark if losses differ. `losses` are those of the case by side. `ours` are ztoolkit's losses at an earlier run of
    the model in the precision, or None."""
    if ours and losses.get("ztoolkit", ours) != ours:
        train_vs.give_up(f"{case}: ztoolkit's losses differ from those of an earlier run: {losses['ztoolkit']} and {ours}")
    if len(losses) < 2:
        return
    steps, bound = CHECKS[case[0]]
    difference = train_vs.largest_difference(losses["ztoolkit"][:steps], losses["DeepSpeed"][:steps])
    if not difference <= bound:
        train_vs.give_up(f"{case}: losses of the first {steps} step(s) differ by {difference:.1e}, more than {bound:.1e}: the two "
                         f"sides do not compute the same. {losses}")


def sides_of(case, options):
    _, model, stage = case
    sides = [side for choice, side in SIDES.items() if options.side in (choice, "both")]
    return [side for side in sides if side == "ztoolkit" or stage < 3 or not TOP_K[model]]


def measure(options):
    """Returns {case: {side: [result of each repetition]}}, with cases (precision, model, stage)."""
    cases = [(precision, model, stage) for precision in options.precision for stage in options.stages for model in options.models]
    results = {case: {side: [] for side in sides_of(case, options)} for case in cases}
    ours = {}
    for repetition in range(options.repetitions):
        for case in cases:
            precision, model, stage = case
            sides = list(results[case])
            for side in sides if repetition % 2 == 0 else reversed(sides):
                result = run_side(side, case, options.by_model[model])
                results[case][side].append(result)
                print(f"{repetition + 1}/{options.repetitions} {precision} {model:5} stage {stage} {side:9} "
                      f"{result['tokens_per_second']:7.0f} tokens/s {result['memory'] / 2**20:6.0f} MiB per rank",
                      file=sys.stderr, flush=True)
            losses = {side: runs[-1]["losses"] for side, runs in results[case].items()}
            check_losses(case, losses, ours.get((precision, model)))
            ours[precision, model] = losses.get("ztoolkit")
    return results


def speed(results, case, side):
    """Returns the median tokens/s of a side, or None if it was not measured."""
    runs = results.get(case, {}).get(side)
    return statistics.median(run["tokens_per_second"] for run in runs) if runs else None


def ratio(numerator, denominator):
    return f"{numerator / denominator:.2f}" if numerator and denominator else ""


def table(results):
    """Returns the speeds as a Markdown table."""
    head = ["precision", "stage", "model"] + [f"{side}, tokens/s (spread)" for side in SIDES.values()] + ["ratio"]
    head += [f"{side}: of its dense model" for side in SIDES.values()]
    head += [f"{side}, MiB per rank" for side in SIDES.values()] + ["losses differ by: first", "first 8"]
    lines = [head, ["---"] * len(head)]
    for case, sides in results.items():
        precision, model, stage = case
        cells = [precision, str(stage), model]
        for side in SIDES.values():
            runs = [run["tokens_per_second"] for run in sides.get(side, [])]
            cells.append(f"{statistics.median(runs):.0f} ({train_vs.spread(runs):.0%})" if runs else "")
        cells.append(ratio(*(speed(results, case, side) for side in SIDES.values())))
        for side in SIDES.values():
            dense = speed(results, (precision, "dense", stage), side)
            cells.append(ratio(speed(results, case, side), dense) if model != "dense" else "")
        cells += [f"{max(run['memory'] for run in sides[side]) / 2**20:.0f}" if sides.get(side) else "" for side in SIDES.values()]
        for steps in (1, 8):
            losses = [runs[0]["losses"][:steps] for runs in sides.values()]
            cells.append(f"{train_vs.largest_difference(*losses):.1e}" if len(losses) == 2 else "")
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def prepare(options):
    """Writes batches and parameters of each model into a folder of its own."""
    options.by_model = {}
    for model in options.models:
        own = copy.copy(options)
        own.folder = options.folder / model
        own.folder.mkdir()
        train_vs.write_batches(own)
        train_vs.export_parameters(own, *expert_arguments(model, options))
        options.by_model[model] = own


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=TOP_K, default=list(TOP_K), help="models (dense top1 top2)")
    for name, default, what in (("layers", 6, "blocks"), ("hidden", 512, "width"), ("heads", 8, "attention heads"),
                                ("vocab", 8192, "tokens"), ("seq", 128, "tokens per sample"), ("experts", 4, "experts per block"),
                                ("micro-batch", 4, "samples per rank and step")):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{what} ({default})")
    parser.add_argument("--aux-loss", type=float, default=0.01, help="weight of the balancing loss (0.01)")
    parser.add_argument("--stages", type=int, nargs="+", choices=range(4), default=[0, 2, 3], help="ZeRO stages (0 2 3)")
    parser.add_argument("--precision", nargs="+", choices=CHECKS, default=["fp32", "bf16"], help="precisions (fp32 bf16)")
    parser.add_argument("--side", choices=(*SIDES, "both"), default="both", help="the sides to measure (both)")
    parser.add_argument("--ranks", type=int, default=2, help="processes (2)")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--steps", type=int, default=13, help="steps per run (13)")
    parser.add_argument("--warmup", type=int, default=3, help="untimed first steps (3)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate (1e-4)")
    parser.add_argument("--clip", type=float, default=1e9, help="norm of the gradient above which it is clipped (1e9: never)")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides DeepSpeed's configuration")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    train_vs.check_warmup(parser, options)
    if options.experts % options.ranks:
        parser.error("--experts must be a multiple of --ranks")
    return options


def main():
    options = parse()
    options.tied, options.batch = False, options.micro_batch * options.ranks
    train_vs.check_ranks(options)
    if options.side != "ours":
        options.python = deepspeed_venv.deepspeed_python()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        prepare(options)
        results = measure(options)
    print(f"{options.ranks} ranks, {options.repetitions} repetition(s) of {options.steps - options.warmup} timed steps of "
          f"{options.batch} x {options.seq} tokens, {options.experts} experts\n")
    print(table(results))


if __name__ == "__main__":
    main()
