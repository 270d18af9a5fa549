"""The rows of offload.py: the runs that each needs, and the targets of its ratios."""

import dataclasses
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # tensor_parallel.py, train_vs.py

import offload_deepspeed
import tensor_parallel
import train_vs
from tensor_parallel_rows import PRECISIONS, RANKS, Check, model, speed
from train_vs_deepspeed import CHECKED, TOLERANCE

# `batch` is the number of samples per step on all ranks together; the first `warmup` of the `steps` are not timed.
MODELS = {
    "main": model("main", batch=4, steps=6, warmup=2, slice=2**20),
    "large": model("large", batch=32, steps=4, warmup=1, slice=2**20),
    "long": {"layers": 8, "hidden": 512, "heads": 8, "vocab": 4096, "seq": 2048, "batch": 4, "steps": 3, "warmup": 1,
             "slice": 2**20},
}
TINY = {"layers": 2, "hidden": 128, "heads": 4, "vocab": 4096, "seq": 32, "batch": 32, "steps": 3, "warmup": 1, "slice": 2**16}
RATIOS = (0, 0.25, 0.5, 0.75, 1)
KINDS = ("read", "write", "mixed")
BLOCK, DEPTH = 4, 8  # MiB of an operation, and operations at a time, of the disk's own rates
# Gives fio's memory huge pages, as swap files have them (glibc 2.35). With small pages fio reaches half of the rates or less, as
# each operation then has a thousand segments.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
PEAK = 64  # MiB that a save or a load may take


class Case(tensor_parallel.Case):
    """The runs and checks of a model and precision, or of the disk alone (model "disk")."""

    def check_losses(self, repetition):
        """Ends the benchmark unless all losses of ztoolkit have equal bits."""
        ours = {run: results[repetition]["losses"] for run, results in self.results.items()
                if not run.startswith("DeepSpeed") and "losses" in results[repetition]}
        for run, losses in ours.items():
            first_run, first = next(iter(ours.items()))
            if losses != first[: len(losses)]:
                train_vs.give_up(f"{self.model}, {self.precision}: the losses of '{first_run}' and '{run}' must have equal bits: "
                                 f"{first} and {losses}")

    def without_failed(self):
        """Removes the checks that need a run that failed."""
        self.checks = [(row, check) for row, check in self.checks
                       if not any("message" in result for run in check.runs for result in self.results[run])]


def disk(case):
    """Runs `ztoolkit io bench`. Returns {"own": {kind: bytes/s}, "fio": the same, or None without fio, "remarks": [line]}."""
    options = case.options
    command = [options.ztoolkit, "io", "bench", options.disk, "--blocks", BLOCK, "--depths", DEPTH, "--size", options.disk_size,
               "--seconds", options.disk_seconds]
    done = subprocess.run(list(map(str, command)), env=train_vs.environment(**HUGE_PAGES), capture_output=True, text=True,
                          timeout=options.timeout)
    lines = done.stdout.splitlines()
    numbers = [1e9 * float(word) for word in re.findall(r"[\d.]+", lines[1])] if len(lines) > 2 else []
    if done.returncode != 0 or len(numbers) not in (5, 8):
        train_vs.give_up(f"ztoolkit io bench failed: {(done.stdout + done.stderr)[-2000:]}")
    fio = dict(zip(KINDS, numbers[5:])) if len(numbers) == 8 else None
    return {"own": dict(zip(KINDS, numbers[2:5])), "fio": fio, "remarks": lines[2:-1]}


def rates(result):
    """Returns the disk's rates: fio's, or those of swap files where fio is missing."""
    return result["fio"] or result["own"]


def ours(stage, *words, in_files=True):
    """Returns the run of offload.lua. `words`: further arguments, such as those that say what lies in files."""
    def run(case):
        options = case.options
        more = [*words, *(["--disk", options.disk, "--slice", options.slice] if in_files else [])]
        more += ["--gemm", options.gemm] if options.gemm else []
        shape = [word for word in train_vs.model_arguments(options) if word != "--tied"]
        command = ["mpirun", "--bind-to", "core", "-n", RANKS, options.ztoolkit, "run", train_vs.ROOT / "bench/peers/offload.lua",
                   *shape, "--stage", stage, "--precision", case.precision, *more]
        return train_vs.run([(list(map(str, command)), train_vs.environment())], options)
    return run


def checkpoint(case):
    """Trains two steps, saves and loads. Returns the seconds and peaks of each save and load, and the bytes of the files."""
    with tempfile.TemporaryDirectory(dir=case.options.disk) as folder:
        own = dataclasses.replace(case, options=case.with_options(steps=2, warmup=1))
        result = ours(1, *OPTIMIZER, "--saves", case.options.saves, "--checkpoints", folder)(own)
        newest = max(path for path in pathlib.Path(folder).iterdir() if path.is_dir())
        saved = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    kept = ("losses", "files", "save", "load", "save_memory", "load_memory")
    return {**{name: result[name] for name in kept}, "saved": saved}


OPTIMIZER = ("--optimizer", "nvme")
RECOMPUTE = ("--recompute",)
STAY = 1  # positions whose activations stay, the default
ALL = (*OPTIMIZER, "--gradients", "nvme", "--parameters", "nvme")
RUNS = {
    "disk": disk,
    "memory, stage 1": ours(1, in_files=False),
    **{f"optimizer, ratio {ratio:g}": ours(1, *OPTIMIZER, "--ratio", ratio) for ratio in RATIOS[:-1]},
    "optimizer, stage 1": ours(1, *OPTIMIZER),
    "memory, stage 3": ours(3, in_files=False),
    "optimizer, stage 3": ours(3, *OPTIMIZER),
    "all, stage 3": ours(3, *ALL),
    "optimizer, simulated": ours(1, *OPTIMIZER, "--simulates"),
    "all, simulated": ours(3, *ALL, "--simulates"),
    "checkpoint": checkpoint,
    "recompute": ours(1, *RECOMPUTE, in_files=False),
    "recompute, activations": ours(1, *RECOMPUTE, "--activations", "nvme"),
    **{f"DeepSpeed, {what}": offload_deepspeed.run_of(what) for what in ("memory", "optimizer", "all")},
}


def run_of_ratio(ratio):
    return "optimizer, stage 1" if ratio == 1 else f"optimizer, ratio {ratio:g}"


def exposed_bytes(result):
    """Returns the bytes of a step with its optimizer in files that cannot move beside forward and backward: all ranks share the
    disk, and each has `staging` bytes in memory when the updates begin and when they end."""
    return max(0, result["moved"]["all"] - 2 * RANKS * result["staging"])


def step(run, memory, bytes_of, title, target):
    """Compares a run's step with the same step in memory and the time of its bytes at the disk's mixed rate."""
    return Check(f"step of {run} / ({memory} + {title} / M)", (run, memory, "disk"),
                 lambda a, b, disk: a["step_seconds"] / (b["step_seconds"] + bytes_of(a) / rates(disk)["mixed"]), target, False)


def simulated(run):
    """Compares the simulated step of a run, with costs measured in it, with the measured one."""
    def ratio(result):
        return result["simulated_seconds"] / result["step_seconds"]
    return [Check(f"simulated step / measured step of {run}", (run,), ratio, 0.95),
            Check(f"simulated step / measured step of {run}", (run,), ratio, 1.05, False)]


def rate_beside_fio(kind, target):
    return Check(f"swap file beside fio, {kind}", ("disk",), lambda disk: disk["own"][kind] / disk["fio"][kind], target)


def moved_by_save(result):
    """Returns the bytes that a save, or a load, reads and writes: the checkpoint, and the state in the files of all ranks."""
    return result["saved"] + RANKS * result["files"]


def part_of_disk(what, bytes_of, title, kind):
    return Check(f"{what}: ({title} / {kind[0].upper()}) / seconds", ("checkpoint", "disk"),
                 lambda a, disk: bytes_of(a) / rates(disk)[kind] / statistics.median(a[what]), 0.9)


def peak(what):
    return Check(f"{what}: MiB more at the peak", ("checkpoint",), lambda a: max(a[f"{what}_memory"]) / 2**20, PEAK, False)


def difference(run, other, precision):
    """Compares the first losses of two runs, as a multiple of the largest allowed difference."""
    steps = CHECKED[precision]
    return Check(f"first losses of {run} - {other}, of {TOLERANCE[precision]:.0e} allowed", (run, other),
                 lambda a, b: train_vs.largest_difference(a["losses"][:steps], b["losses"][:steps]) / TOLERANCE[precision],
                 1, False)


def beside_deepspeed(precision):
    loss = Check("NVMe's factor on a step, ours / DeepSpeed's (optimizer, stage 3)",
                 ("optimizer, stage 3", "memory, stage 3", "DeepSpeed, optimizer", "DeepSpeed, memory"),
                 lambda a, b, c, d: a["step_seconds"] / b["step_seconds"] / (c["step_seconds"] / d["step_seconds"]), 1, False)
    ahead = [speed(f"{what}, stage 3", f"DeepSpeed, {what}", 1) for what in ("memory", "optimizer", "all")]
    return [*ahead, loss, difference("DeepSpeed, memory", "memory, stage 3", precision),
            difference("DeepSpeed, optimizer", "DeepSpeed, memory", precision)]


def layers_held(case):
    """Returns the check of how many layers' inputs are in memory besides those that stay."""
    options = case.options
    layer = options.batch / RANKS * options.seq * options.hidden * (2 if case.precision == "bf16" else 4)  # whole pages
    return Check("layers held besides those that stay", ("recompute", "recompute, activations"),
                 lambda a, b: options.layers + 1 - (a["activations"] - b["activations"]) / layer - STAY, 2, False)


def activations(case):
    return [speed("recompute, activations", "recompute", 0.95), layers_held(case)]


DISK = [rate_beside_fio("read", 0.95), rate_beside_fio("write", 0.95), rate_beside_fio("mixed", 0.9)]
STAGE_1 = [step("optimizer, stage 1", "memory, stage 1", exposed_bytes, "(bytes - 2 x staging)", 1.05)]
STAGE_3 = [step("all, stage 3", "memory, stage 3", lambda result: result["moved"]["update"], "bytes of the update", 1.15)]
CHECKPOINT = [
    part_of_disk("save", moved_by_save, "bytes read and written", "mixed"),
    part_of_disk("load", lambda result: result["saved"], "bytes of the checkpoint", "read"),
    part_of_disk("load", moved_by_save, "bytes read and written", "mixed"),
    peak("save"), peak("load"),
]
# By name: the checks of a case. "disk" has a case of its own, "activations" a model, and "ratio" no targets.
ROWS = {
    "disk": lambda case: DISK,
    "optimizer": lambda case: STAGE_1,
    "all": lambda case: STAGE_3,
    "ratio": lambda case: [],
    "deepspeed": lambda case: beside_deepspeed(case.precision),
    "simulated": lambda case: [*simulated("optimizer, simulated"), *simulated("all, simulated")],
    "checkpoint": lambda case: CHECKPOINT,
    "activations": activations,
}


def has_row(model, row):
    """Returns whether a model is for the row: long samples are for activations."""
    return model == "tiny" or (model == "long") == (row == "activations")
