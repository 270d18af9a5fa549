#!/usr/bin/env python3
"""Measures tensor, sequence and context parallelism on the CPU, in alternation: 2 ranks, each with one thread and its own core, beside
data parallelism, one rank, PyTorch and DeepSpeed.

    .venv-oracle/bin/python bench/peers/tensor_parallel.py
    .venv-oracle/bin/python bench/peers/tensor_parallel.py --rows dp sequence --precision fp32
    .venv-oracle/bin/python bench/peers/tensor_parallel.py --rows base --base OLD/build/release/bin/ztoolkit

rows:   dp        tp 2 beside dp 2, both at ZeRO stage 1; the share of the GEMMs alone in their steps
        sequence  sequence parallelism beside tensor parallelism without it: speed, and activations as trainer:memory() measures them
        peers     tp 2 beside PyTorch's torch.distributed.tensor.parallel and DeepSpeed's AutoTP, over gloo
        context   cp 2 by each method beside twice the speed of one rank, and beside its activations
        longest   the longest sample whose planned memory is --budget per rank, cp 2 beside one rank, both with recompute and tiles
        loss      seconds of the head with its loss, vocabulary cut by tp 2, beside one rank (trainer:costs)
        tile      seconds of the head and of MLPs in tiles of rows, beside the same without tiles (nn_bench)
        base      one rank and dp 2 beside another build of ztoolkit, --base: equal bits of all losses, and the speed

models: main   6 layers, hidden 512, 8 heads, vocabulary 8192, 8 samples of 256 tokens per step: 27.4 M parameters
        large  12 layers, hidden 1024, 16 heads, vocabulary 16384, 16 samples of 32 tokens: 185 M parameters
        long   the first with one sample of 8192 tokens
All sides train on the same samples with the same weights: with tp and cp each rank is given all samples, with dp 2 half of them. AdamW
(betas 0.9 and 0.95, decay 0.1 of matrices), gradients clipped at norm 1, learning rate 1e-4; the head is not tied. PyTorch cuts the
embedding and the head by vocabulary and uses loss_parallel; in bf16 its parameters are fp32, and the forward runs under autocast.
DeepSpeed gathers the logits and has parameters in bf16. PyTorch's context_parallel is not a side: PyTorch 2.11 has no rule for the
operator of attention on the CPU and stops with NotImplementedError.

Each repetition starts new processes for all runs of a model and precision that the chosen rows need; every other repetition runs them
in reverse order. A ratio is computed per repetition; the tables have medians, and the spread is (largest - smallest) / median. The
GEMMs alone (products_bench) have the shapes of one rank and run in as many processes at the same time.

The benchmark fails if the losses show that the sides do not compute the same: the fp32 losses of the first 8 steps must agree within
1e-5, the first bf16 loss within 2^-8 (train_vs_deepspeed.py gives the reasons); those of PyTorch with the large model within 2e-5, as
PyTorch adds up the squares of the clipping norm in fp32: its losses on one rank are 7.5e-6 from its own in fp64, and ztoolkit's in fp32
5.6e-7. It exits with status 1 if a target is missed.
"""

import argparse
import copy
import dataclasses
import json
import pathlib
import sys
import tempfile

import tensor_parallel_report
import train_vs
from tensor_parallel_rows import MODELS, PRECISIONS, RANKS, ROWS, RUNS, products_of
from train_vs_deepspeed import CHECKED, TOLERANCE


@dataclasses.dataclass(eq=False)
class Case:
    """The runs and checks of a model and precision. `results`: {run: [result of each repetition]}."""
    model: str
    precision: str
    options: argparse.Namespace
    checks: list = dataclasses.field(default_factory=list)  # (name of the row, Check)
    results: dict = dataclasses.field(default_factory=dict)

    def with_options(self, **more):
        own = copy.copy(self.options)
        vars(own).update(more)
        return own

    def add(self, row, checks):
        self.checks += [(row, check) for check in checks]
        runs = [run for check in checks for run in check.runs]
        for run in runs + [products_of(run, self.model) for run in runs]:
            if run:
                self.results.setdefault(run, [])

    def check_losses(self, repetition):
        """Ends the benchmark if the losses of a repetition differ."""
        losses = {run: results[repetition]["losses"] for run, results in self.results.items() if "losses" in results[repetition]}
        for run in losses:
            difference, bound = self.difference(run, losses), self.tolerance(run)
            if not difference <= bound:
                train_vs.give_up(f"{self.model}, {self.precision}: the first losses of {run} differ by {difference:.1e}, more than "
                                 f"{bound:.1e}: the sides do not compute the same. {losses}")
        for _, check in self.checks:
            if check.has_equal_losses and len({tuple(losses[run]) for run in check.runs}) > 1:
                train_vs.give_up(f"{self.model}, {self.precision}: the losses of {' and '.join(check.runs)} must have equal bits: "
                                 f"{losses}")

    def tolerance(self, run):
        return TOLERANCE[self.precision] * (2 if run.startswith("PyTorch") and self.model == "large" else 1)

    def difference(self, run, losses):
        """Returns the largest relative difference of a run's checked losses from those of the first run with losses."""
        steps = CHECKED[self.precision]
        return train_vs.largest_difference(losses[run][:steps], next(iter(losses.values()))[:steps])


def cases_of(options):
    """Returns the cases of the chosen rows, with a folder of weights and batches for each."""
    cases = {}
    for row in options.rows:
        for (model, precision), checks in ROWS[row].items():
            if model not in options.models or precision not in options.precision:
                continue
            if (model, precision) not in cases:
                own = copy.copy(options)
                given = {name: getattr(options, name) for name in MODELS[model] if getattr(options, name) is not None}
                vars(own).update({**MODELS[model], **given}, tied=False, ranks=1, folder=options.folder / f"{model}-{precision}")
                cases[model, precision] = Case(model, precision, own)
            cases[model, precision].add(row, checks)
    return list(cases.values())


def prepare(case):
    options = case.options
    if not 0 < options.warmup < options.steps:
        train_vs.give_up(f"{case.model}: --warmup must be at least 1 and less than the {options.steps} steps")
    if options.batch % RANKS and any(run.startswith("dp 2") for run in case.results):
        train_vs.give_up(f"{case.model}: dp {RANKS} needs an even --batch, not {options.batch}")
    options.folder.mkdir()
    train_vs.write_batches(options)
    train_vs.export_parameters(options)


def measure(case, repetition):
    """Runs all runs of a case once, and checks their losses."""
    runs = list(case.results)
    for run in runs if repetition % 2 == 0 else reversed(runs):
        result = RUNS[run](case)
        if "tokens_per_second" in result:
            result["step_seconds"] = case.options.batch * case.options.seq / result["tokens_per_second"]
        case.results[run].append(result)
        print(f"{repetition + 1}/{case.options.repetitions} {case.model} {case.precision} {run:34} "
              f"{tensor_parallel_report.in_words(result)}", file=sys.stderr, flush=True)
    case.check_losses(repetition)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = [row for row in ROWS if row != "base"]
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=default, help=f"the rows to measure ({' '.join(default)})")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="only cases of these models (all)")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="only these (fp32 bf16)")
    for name, what in (("layers", "blocks"), ("hidden", "width"), ("heads", "attention heads"), ("vocab", "tokens"),
                       ("seq", "tokens per sample"), ("batch", "samples per step"), ("steps", "steps per run"),
                       ("warmup", "untimed first steps, in which memory is measured")):
        parser.add_argument(f"--{name}", type=int, help=f"{what}; default: those of the model")
    parser.add_argument("--repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--seconds", type=int, default=8, help="seconds of the GEMMs alone, per run (8)")
    parser.add_argument("--budget", type=float, default=2, help="GiB per rank of the row `longest` (2)")
    parser.add_argument("--base", type=pathlib.Path, help="the program of another build, for the row `base`")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides DeepSpeed's configuration")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    options.lr = 1e-4
    if ("base" in options.rows) != bool(options.base):
        parser.error("the row `base` and --base need each other")
    if len(train_vs.cores()) < RANKS:
        parser.error(f"{RANKS} ranks need one core each, but this process may use {len(train_vs.cores())}")
    return options


def main():
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        options.folder = pathlib.Path(folder)
        cases = cases_of(options)
        if not cases:
            train_vs.give_up("no row has a case of these --models and --precision")
        for case in cases:
            prepare(case)
        for repetition in range(options.repetitions):
            for case in cases:
                measure(case, repetition)
    tensor_parallel_report.report(cases, options)
    if not tensor_parallel_report.all_hold(cases):
        sys.exit(1)


if __name__ == "__main__":
    main()
