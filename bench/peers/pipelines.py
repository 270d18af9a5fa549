#!/usr/bin/env python3
"""Compares ztoolkit's pipelines with those of PyTorch and DeepSpeed on the CPU, in alternation: 2 ranks, each with one thread and
its own core, the same GPT, weights, batches, micro-batches and cut into stages.

    .venv-oracle/bin/python bench/peers/pipelines.py
    .venv-oracle/bin/python bench/peers/pipelines.py --precision bf16 --micro-batches 8 --torch-schedules 1F1B
    .venv-oracle/bin/python bench/peers/pipelines.py --even

The first form compares ztoolkit with torch.distributed.pipelining and with DeepSpeed's PipelineModule, over gloo. The model has 6
blocks, hidden 512, 8 heads, vocabulary 8192, not tied: 27.4 M parameters. The first use makes .venv-deepspeed, as that of
train_vs_deepspeed.py does.

--even compares ztoolkit's pipelines with its own data parallelism, on a model that two stages share evenly: 7 blocks, and
vocabulary 6144, so that the head takes as long as a block (tokens are taken modulo the vocabulary). All sides train on the same
samples: with m micro-batches per step, each data-parallel rank has m / 2.

Sequence 128, 4 samples per micro-batch. AdamW (betas 0.9 and 0.95, decay 0.1 of matrices); the gradient of the whole model is
clipped at norm 1; the loss is the mean over all tokens of the step. A cut is a list with the number of layers of each stage; the
embedding is the first layer, and norm, head and loss are the last. Schedules with one stage per rank have --cut2, those with two
(interleaved, zb_v and the like) --cut4. By default the rank with the most work has as little as possible.

bf16: ztoolkit and DeepSpeed have parameters and activations in bf16 and fp32 master weights. PyTorch has parameters in fp32 and
runs the forward of each stage under autocast, which is the simplest way; activations between its stages are then fp32.

Each repetition starts new processes for all sides, for every precision and number of micro-batches; every other repetition runs
them in reverse order. It measures the tokens/s of the steps after the warm-up, and the memory per rank: the peak of the warm-up
steps minus the memory before the model was built, as the mean of the ranks. The table has medians, the largest memory of the
repetitions, and the spread, (largest - smallest) / median. Each ratio of medians stands beside its target, if it has one.

The benchmark fails if losses show that the sides do not compute the same: the fp32 losses of the first 8 steps must agree within
1e-5, the first bf16 loss within 2^-8 (train_vs_deepspeed.py gives the reasons). The losses of ztoolkit's pipelines must be equal
in every bit for the same precision and number of micro-batches.
"""

import argparse
import copy
import itertools
import json
import pathlib
import sys
import tempfile

import deepspeed_venv
import train_vs
from pipelines_report import DATA_PARALLEL, report
from train_vs_deepspeed import CHECKED, TOLERANCE

MODELS = {
    "main": {"layers": 6, "hidden": 512, "heads": 8, "vocab": 8192, "seq": 128, "micro_batch": 4},
    "even": {"layers": 7, "hidden": 512, "heads": 8, "vocab": 6144, "seq": 128, "micro_batch": 4},
}
RANKS = 2
# Schedules by the number of stages per rank.
OURS = {1: ("gpipe", "one_f_one_b", "zb_h1", "zb_h2"),
        2: ("interleaved", "interleaved_zb", "breadth_first", "zb_v", "v_half", "v_min", "dualpipe_v")}
TORCH = {1: ("GPipe", "1F1B"), 2: ("Interleaved1F1B", "LoopedBFS", "InterleavedZeroBubble")}
SIDES = ("ztoolkit", "PyTorch", "DeepSpeed")


def work_of_layers(options):
    """Returns the multiplications per token in the GEMMs of each layer's forward."""
    block = 12 * options.hidden**2 + options.seq * options.hidden  # causal attention: half of the products of its two GEMMs
    return [0, *[block] * options.layers, options.vocab * options.hidden]


def balanced_cut(work, stages):
    """Returns the cut into 2 or 4 stages, as numbers of layers, whose rank with the most work has the least; of several, the one
    with the most even stages. Of 4 stages, rank 0 has 0 and 2 (interleaved) or 0 and 3 (V): both count."""
    def loads(begins):
        sums = [sum(work[begin:end]) for begin, end in itertools.pairwise((0, *begins, len(work)))]
        places = [[stage % RANKS for stage in range(stages)], [min(stage, stages - 1 - stage) for stage in range(stages)]]
        ranks = [sum(s for s, its_rank in zip(sums, place) if its_rank == rank) for place in places for rank in range(RANKS)]
        return max(ranks), sum(s * s for s in sums)

    best = min(itertools.combinations(range(1, len(work)), stages - 1), key=loads)
    return [end - begin for begin, end in itertools.pairwise((0, *best, len(work)))]


def cut_of(schedule, options):
    return options.cut4 if schedule in OURS[2] + TORCH[2] else options.cut2


def run_ztoolkit(schedule, options):
    words = ["--precision", options.precision, "--stage", options.stage]
    if schedule == DATA_PARALLEL:
        return train_vs.run_ztoolkit(options, *words, "--micro-batches", options.micro_batches // RANKS)
    return train_vs.run_ztoolkit(options, *words, "--micro-batches", options.micro_batches, "--schedule", schedule,
                                 "--partition", ",".join(map(str, cut_of(schedule, options))))


def run_side(side, schedule, options):
    """Runs one side with the precision and the micro-batches of `options`. Returns its result (train_vs.run)."""
    if side == "ztoolkit":
        return run_ztoolkit(schedule, options)
    words = ["--precision", options.precision, "--micro-batches", options.micro_batches, "--cut", *cut_of(schedule, options)]
    if side == "PyTorch":
        script = train_vs.ROOT / "bench/peers/ranks/pipelines_torch_rank.py"
        return train_vs.run_python([sys.executable, script, *words, "--schedule", schedule], options)
    script = train_vs.ROOT / "bench/peers/ranks/pipelines_deepspeed_rank.py"
    words += ["--stage", options.stage, "--config", json.dumps(options.config)]
    return train_vs.run_python([options.python, script, *words], options, **deepspeed_venv.variables())


def is_own_pipeline(run):
    return run[0] == "ztoolkit" and run[1] != DATA_PARALLEL


def check_losses(case, run, losses, first):
    """Ends the benchmark if the losses of a run, (side, schedule), do not agree with those of the case's first run. `first`: (its
    run, its losses)."""
    (precision, micro_batches), (first_run, first_losses) = case, first
    if is_own_pipeline(run) and is_own_pipeline(first_run):
        if losses == first_losses:
            return
        wrong = "differ, and all bits must be equal"
    else:
        steps = CHECKED[precision]
        difference = train_vs.largest_difference(first_losses[:steps], losses[:steps])
        if difference <= TOLERANCE[precision]:
            return
        wrong = f"differ by {difference:.1e} in the first {steps} steps, more than {TOLERANCE[precision]:.1e}"
    train_vs.give_up(f"{precision}, {micro_batches} micro-batches: the losses of {' '.join(first_run)} and {' '.join(run)} "
                     f"{wrong}: they do not compute the same. {first_losses} and {losses}")


def options_of_cases(options):
    """Returns {(precision, micro-batches): options}, and writes parameters and batches into a folder for each number of
    micro-batches."""
    cases = {}
    for micro_batches in options.micro_batches:
        own = copy.copy(options)
        own.micro_batches, own.batch = micro_batches, micro_batches * options.micro_batch
        own.folder = options.folder / str(micro_batches)
        own.folder.mkdir()
        train_vs.check_ranks(own)
        train_vs.write_batches(own, fold=True)
        train_vs.export_parameters(own)
        for precision in options.precision:
            cases[precision, micro_batches] = copy.copy(own)
            cases[precision, micro_batches].precision = precision
    return cases


def runs_of(options):
    """Returns the runs of every case, as (side, schedule)."""
    runs = [("ztoolkit", schedule) for schedule in options.schedules]
    if options.even:
        return [*runs, ("ztoolkit", DATA_PARALLEL)]
    runs += [("PyTorch", schedule) for schedule in options.torch_schedules]
    runs.append(("DeepSpeed", "1F1B"))
    return [run for run in runs if run[0] in options.sides]


def measure(options):
    """Returns {(precision, micro-batches): {(side, schedule): [result of each repetition]}}. Checks the losses of all results."""
    runs, cases = runs_of(options), options_of_cases(options)
    results = {case: {run: [] for run in runs} for case in cases}
    first = {}
    for repetition in range(options.repetitions):
        for case, its_options in cases.items():
            for run in runs if repetition % 2 == 0 else reversed(runs):
                result = run_side(*run, its_options)
                check_losses(case, run, result["losses"], first.setdefault(case, (run, result["losses"])))
                results[case][run].append(result)
                print(f"{repetition + 1}/{options.repetitions} {case[0]} {case[1]} micro-batches {' '.join(run):25} "
                      f"{result['tokens_per_second']:7.0f} tokens/s {result['memory'] / 2**20:6.0f} MiB per rank",
                      file=sys.stderr, flush=True)
    return results


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--even", action="store_true", help="ztoolkit's pipelines and its data parallelism, on the even model")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES, help="the sides to measure (all)")
    parser.add_argument("--schedules", nargs="+", choices=OURS[1] + OURS[2], metavar="NAME",
                        default=["one_f_one_b", "interleaved", "zb_h1", "zb_v"],
                        help=f"ztoolkit's schedules, of {' '.join(OURS[1] + OURS[2])} (one_f_one_b interleaved zb_h1 zb_v)")
    parser.add_argument("--torch-schedules", nargs="+", choices=TORCH[1] + TORCH[2], default=["1F1B", "Interleaved1F1B"],
                        help="PyTorch's schedules (1F1B Interleaved1F1B)")
    parser.add_argument("--precision", nargs="+", choices=TOLERANCE, default=["fp32", "bf16"], help="precisions (fp32 bf16)")
    parser.add_argument("--micro-batches", type=int, nargs="+", default=[4, 8], help="micro-batches per step (4 8)")
    for stages in (2, 4):
        parser.add_argument(f"--cut{stages}", type=lambda text: [int(count) for count in text.split(",")], metavar="N,N,...",
                            help=f"the number of layers of each of {stages} stages; default: a balanced cut")
    for name, what in (("layers", "blocks"), ("hidden", "width"), ("heads", "attention heads"), ("vocab", "tokens"),
                       ("seq", "tokens per sample"), ("micro_batch", "samples per micro-batch")):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=what)
    parser.add_argument("--stage", type=int, choices=(0, 1), default=1, help="ZeRO stage of ztoolkit and DeepSpeed (1)")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--steps", type=int, default=7, help="steps per run (7)")
    parser.add_argument("--warmup", type=int, default=2, help="untimed first steps, in which memory is measured (2)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate (1e-4)")
    parser.add_argument("--oversubscribe", action="store_true", help="ranks may share cores: memory is valid, times are not")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides DeepSpeed's configuration")
    parser.add_argument("--json", action="store_true", help="print JSON with all losses instead of tables")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    complete(parser, options)
    return options


def complete(parser, options):
    """Sets the defaults that depend on the model, and refuses options that do not fit together."""
    for name, value in MODELS["even" if options.even else "main"].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for stages in (2, 4):
        cut = getattr(options, f"cut{stages}") or balanced_cut(work_of_layers(options), stages)
        if len(cut) != stages or sum(cut) != options.layers + 2 or min(cut) < 1:
            parser.error(f"--cut{stages} must be {stages} numbers, 1 or more, whose sum is {options.layers + 2} layers")
        setattr(options, f"cut{stages}", cut)
    if any(count % RANKS for count in options.micro_batches):
        parser.error("--micro-batches must be even numbers")
    train_vs.check_warmup(parser, options)
    options.tied, options.ranks = False, RANKS


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        if not options.even and "DeepSpeed" in options.sides:
            options.python = deepspeed_venv.deepspeed_python()
        report(measure(options), options, lambda schedule: cut_of(schedule, options))


if __name__ == "__main__":
    main()
