#!/usr/bin/env python3
"""Measures offload.move, which keeps the data of a step in files, on 2 ranks of one core each: beside fio, training in memory, and
DeepSpeed's ZeRO-Infinity, in alternation.

    .venv-oracle/bin/python bench/peers/offload.py --folder /path/on/the/disk
    .venv-oracle/bin/python bench/peers/offload.py --rows optimizer all --models main --precision fp32
    .venv-oracle/bin/python bench/peers/offload.py --quick                 a tiny model, once: does all of it run?

rows:   disk        swap files alone beside fio (ztoolkit io bench): read, write, mixed
        optimizer   stage 1 with the optimizer in files beside the same in memory plus the time of the bytes
        all         stage 3 with optimizer, gradients and parameters in files, likewise
        ratio       stage 1, step times by the share of the optimizer state that travels; no target
        simulated   a step that is simulated with costs measured in the run beside the measured one
        deepspeed   stage 3 beside DeepSpeed's: in memory, with the optimizer, and with optimizer and parameters in files
        checkpoint  saves and loads of a state in files (stage 1): seconds beside those of the disk, and memory
        activations recompute with the inputs of layers in files beside recompute alone (the model long only)

models: main   6 layers, hidden 512, 8 heads, vocabulary 8192, 4 samples of 256 tokens per step: 27.4 M parameters
        large  12 layers, hidden 1024, 16 heads, vocabulary 16384, 32 samples of 32 tokens: 185 M parameters
A step has 1,024 tokens of both ranks together. All sides train on the same samples with the same weights, AdamW (betas 0.9 and
0.95, decay 0.1 of matrices), gradients clipped at norm 1, learning rate 1e-4; the head is not tied.

R, W and M are fio's rates for reads, writes and both at once (bytes of both per second), 4 MiB at depth 8, direct I/O, one
process, whose memory has huge pages (GLIBC_TUNABLES), as that of swap files. They are measured in each repetition, in turn with
the runs. Where fio is missing, they are those of swap files, and the tables say so; where it is not, a second table has the same
checks by the rates of swap files, for information. Bytes are those of all ranks, which share the disk: those that the trainer's
simulation moves (FETCH and EVICT); the bytes that the kernel counts stand beside them. The targets:
  optimizer   step <= 1.05 x (step in memory + (bytes - 2 x staging) / M): `staging` is in memory when the updates begin and end
  all         step <= 1.15 x (step in memory + bytes of the update / M). They are all that move between the FETCH and the EVICT
              around a STEP: not the parameters for UNSHARD, nor the gradients on their way to the files
  simulated   within 5 % of the measured step, with the optimizer in files and with all of it
  deepspeed   at least DeepSpeed's tokens/s; and the factor that files cost a step is not above DeepSpeed's. Only its stage 3 has
              files, so both sides have that stage; ztoolkit's parameters are then not shared by the ranks, as files require
  checkpoint  0.9 of the disk's rate: a save beside (bytes read from swap files and written) / M, a load beside bytes of the
              checkpoint / R, and beside (bytes read and written) / M, as it also fills the swap files. At most 64 MiB more memory
              than before: the peak of the resident memory of rank 0
DeepSpeed reads and writes beside the update (pipeline_read, pipeline_write), in groups of 3e6 elements; --config changes that.
Its operator async_io needs Debian's package libaio-dev and is compiled at the first use, in minutes. Where DeepSpeed stops, the
report has its message. Without DeepSpeed the other rows are measured. On the CPU DeepSpeed keeps parameters that lie in files in
bf16, also in fp32 training, so its losses then differ from those in memory; the column of the first losses shows it. Shards of
parameters below 1 MiB stay in memory.

Each repetition starts new processes for all runs of a model and precision; every other repetition runs them in reverse order. A
ratio is computed per repetition; the tables have medians, and the spread is (largest - smallest) / median. The benchmark fails
unless all losses of ztoolkit have equal bits, in memory and with files, and unless a loaded checkpoint trains as the saved state
did. The first 8 losses of DeepSpeed in fp32, and the first in bf16, are compared with ztoolkit's and with each other: they must
agree as in train_vs_deepspeed.py. It exits with status 1 if a target is missed, but for --quick.
"""

import argparse
import copy
import json
import pathlib
import shutil
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "nvme"))  # offload_*.py

import offload_deepspeed
import offload_report
import train_vs
from offload_rows import MODELS, PRECISIONS, RANKS, RATIOS, ROWS, RUNS, TINY, Case, has_row, run_of_ratio
from tensor_parallel import prepare
from tensor_parallel_report import all_hold


def case_of(model, precision, options):
    """Returns a case without runs. Its options are those of the model, which the command line overrides."""
    own, shape = copy.copy(options), options.shapes[model]
    given = {name: getattr(options, name) for name in ("steps", "warmup") if getattr(options, name) is not None}
    vars(own).update({**shape, **given}, tied=False, ranks=RANKS, folder=options.folder / f"{model}-{precision}")
    return Case(model, precision, own)


def cases_of(options):
    """Returns the disk's case and one per model and precision, as the rows need them."""
    cases = []
    if "disk" in options.rows:
        cases.append(Case("disk", "", options, results={"disk": []}))
        if shutil.which("fio"):
            cases[0].add("disk", ROWS["disk"](cases[0]))
    for model in options.models:
        rows = [row for row in options.rows if row != "disk" and has_row(model, row)]
        if not rows:
            continue
        for precision in options.precision:
            case = case_of(model, precision, options)
            case.results["disk"] = []
            for row in rows:
                case.add(row, ROWS[row](case))
            if "ratio" in rows:
                for run in ("memory, stage 1", *map(run_of_ratio, RATIOS)):
                    case.results.setdefault(run, [])
            case.results = {run: [] for run in RUNS if run in case.results}
            cases.append(case)
    return cases


def measure(case, repetition):
    """Runs all runs of a case once, and checks their losses. A run of DeepSpeed that failed is not run again."""
    runs = list(case.results)
    for run in runs if repetition % 2 == 0 else reversed(runs):
        last = case.results[run][-1] if case.results[run] else {}
        result = last if "message" in last else RUNS[run](case)
        if "tokens_per_second" in result:
            result["step_seconds"] = case.options.batch * case.options.seq / result["tokens_per_second"]
        case.results[run].append(result)
        print(f"{repetition + 1}/{case.options.repetitions} {case.model} {case.precision} {run:20} "
              f"{offload_report.in_words(result)}", file=sys.stderr, flush=True)
    case.check_losses(repetition)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS), help="the rows to measure (all)")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="models (main large; long: of the row activations)")
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="precisions (fp32 bf16)")
    parser.add_argument("--folder", dest="disk_folder", type=pathlib.Path, default=train_vs.ROOT / "build",
                        help="a folder on the disk; up to 12 GB are in use at a time (build)")
    parser.add_argument("--repeats", dest="repetitions", type=int, default=5, help="repetitions of all runs (5)")
    parser.add_argument("--steps", type=int, help="steps per run; default: 6 (main) or 4 (large)")
    parser.add_argument("--warmup", type=int, help="untimed first steps, in which memory is measured; default: 2 or 1")
    parser.add_argument("--saves", type=int, default=3, help="saves, and loads, per run of the row checkpoint (3)")
    parser.add_argument("--disk-size", type=int, default=1024, help="MiB of the files of the disk's own rates (1024)")
    parser.add_argument("--disk-seconds", type=float, default=1, help="seconds of each of the disk's own rates (1)")
    parser.add_argument("--quick", action="store_true", help="a tiny model, once: shows that all runs work; no number is valid")
    parser.add_argument("--gemm", help="ztoolkit's GEMM provider, aten, mkl or skinny; default: the default rule")
    parser.add_argument("--config", type=json.loads, default={}, help="JSON that overrides DeepSpeed's configuration")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    options.lr, options.shapes, options.no_deepspeed = 1e-4, MODELS, None
    if options.quick:
        options.models, options.shapes, options.repetitions, options.saves = ["tiny"], {"tiny": TINY}, 1, 1
        options.disk_size, options.disk_seconds = 64, 0.2
    if len(train_vs.cores()) < RANKS:
        parser.error(f"{RANKS} ranks need one core each, but this process may use {len(train_vs.cores())}")
    return options


def main():
    options = parse()
    if "deepspeed" in options.rows:
        options.no_deepspeed = offload_deepspeed.missing(options)
        if options.no_deepspeed:
            print(f"DeepSpeed is left out: {options.no_deepspeed}", file=sys.stderr, flush=True)
            options.rows = [row for row in options.rows if row != "deepspeed"]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory(dir=options.disk_folder) as disk:
        options.folder, options.disk = pathlib.Path(folder), pathlib.Path(disk)
        cases = cases_of(options)
        for case in cases:
            if case.model != "disk":
                prepare(case)
        for repetition in range(options.repetitions):
            for case in cases:
                measure(case, repetition)
        for case in cases:
            case.without_failed()
        offload_report.report(cases, options)
    if not options.quick and not all_hold(cases):
        sys.exit(1)


if __name__ == "__main__":
    main()
