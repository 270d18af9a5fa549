"""The rows of tensor_parallel.py: which runs each compares, and the targets of its ratios."""

import dataclasses
import functools
import json
import subprocess
import sys
import typing

import deepspeed_venv
import train_vs
import train_vs_deepspeed
from train_vs_products import seconds_of_products

PRECISIONS = ("fp32", "bf16")
METHODS = ("ring", "gather", "ulysses")
AT_ONCE = {"ring": ("--heads-at-once", 1), "gather": ("--heads-at-once", 1), "ulysses": ()}  # for the longest sequences
RANKS = 2
TILE = 1024  # rows of a tile


def model(name, **more):
    shape = {key: value for key, value in train_vs_deepspeed.MODELS[name].items() if key != "micro_batch"}
    return {**shape, **more}


# `batch` is the number of samples per step on all ranks together; the first `warmup` of the `steps` are not timed.
MODELS = {
    "main": model("main", batch=8, steps=13, warmup=3),
    "large": model("large", batch=16, steps=9, warmup=2),
    "long": model("main", seq=8192, batch=1, steps=4, warmup=1),
}


def ours(*words, ranks=RANKS, program="ztoolkit"):
    """Returns the run of train_vs.lua with further arguments. `program`: the option that holds the path of the program."""
    def run(case):
        own = case.with_options(ranks=ranks, ztoolkit=getattr(case.options, program))
        return train_vs.run_ztoolkit(own, "--precision", case.precision, *words)
    return run


def peer(script, *words, is_deepspeed=False):
    """Returns the run of a rank script."""
    def run(case):
        command = [train_vs.ROOT / "bench/peers/ranks" / script, "--precision", case.precision, *words]
        own = case.with_options(ranks=RANKS)
        if not is_deepspeed:
            return train_vs.run_python([sys.executable, *command], own)
        more = ["--stage", 1, "--config", json.dumps(case.options.config)]
        return train_vs.run_python([deepspeed_venv.deepspeed_python(), *command, *more], own, **deepspeed_venv.variables())
    return run


def products(ranks=RANKS, parts=1, samples_in=1, tokens_in=1, attention=True):
    """Returns the run of one rank's GEMMs alone, in `ranks` processes at the same time. The matrices are cut into `parts`, the
    step's samples into `samples_in`, and the tokens of a sample into `tokens_in`."""
    def run(case):
        options = case.options
        own = case.with_options(micro_batch=options.batch // samples_in, seq=options.seq // tokens_in,
                                heads=options.heads if attention else 0)
        return {"step_seconds": seconds_of_products(case.precision, own, ranks, parts)["products", ranks]}
    return run


def longest(ranks, *words):
    """Returns the run that finds the longest sample, in multiples of TILE, whose planned memory per rank is at most --budget. One
    sample per step, rotary positions, recompute, tiles in the head and in the MLPs."""
    def run(case):
        options = case.options
        fits, too_long = 0, 1
        while planned_bytes(options, ranks, too_long * TILE, words) <= options.budget * 2**30:
            fits, too_long = too_long, 2 * too_long
        while too_long - fits > 1:
            middle = (fits + too_long) // 2
            if planned_bytes(options, ranks, middle * TILE, words) <= options.budget * 2**30:
                fits = middle
            else:
                too_long = middle
        return {"tokens": fits * TILE}
    return functools.cache(run)


def planned_bytes(options, ranks, seq, words):
    """Returns the bytes of a rank that `ztoolkit plan` counts for a sample of `seq` tokens."""
    shape = [word for name in ("layers", "hidden", "heads", "vocab") for word in (f"--{name}", getattr(options, name))]
    command = [options.ztoolkit, "plan", "--ranks", ranks, "--json", train_vs.ROOT / "bench/peers/train_vs.lua", *shape,
               "--folder", options.folder, "--seq", seq, "--batch", 1, "--steps", 2, "--warmup", 1, "--position", "rotary",
               "--recompute", "--head-tile", TILE, "--mlp-tile", TILE, *words]
    done = subprocess.run(list(map(str, command)), env=train_vs.environment(), capture_output=True, text=True)
    if done.returncode != 0:
        train_vs.give_up(f"ztoolkit plan failed with {seq} tokens: {done.stderr[-2000:]}")
    return max(kind["memory"]["total"] for kind in json.loads(done.stdout)["kinds"])


def tiles(case):
    """Runs the layers with tiles of nn_bench, which compares the results. Returns {layer: time beside the untiled layer}."""
    command = [case.options.ztoolkit.parent.parent / "bench/nn_bench", f"--benchmark_filter=^tile_.*/{case.precision}/{TILE}/",
               "--benchmark_format=json"]
    done = subprocess.run(["taskset", "--cpu-list", str(train_vs.cores()[0]), *map(str, command)], env=train_vs.environment(),
                          check=True, stdout=subprocess.PIPE, timeout=case.options.timeout)
    return {entry["name"].partition("/")[0]: entry["ratio"] for entry in json.loads(done.stdout)["benchmarks"]}


RUNS = {
    "dp 2": ours(),
    "tp 2": ours("--tp", 2),
    "tp 2, sequence": ours("--tp", 2, "--sequence-parallel"),
    "PyTorch tp 2": peer("tensor_parallel_torch_rank.py"),
    "PyTorch tp 2, sequence": peer("tensor_parallel_torch_rank.py", "--sequence-parallel"),
    "DeepSpeed tp 2": peer("tensor_parallel_deepspeed_rank.py", is_deepspeed=True),
    "1 rank": ours(ranks=1),
    **{f"cp 2, {method}": ours("--cp", 2, "--method", method) for method in METHODS},
    "1 rank, costs": ours("--costs", ranks=1),
    "tp 2, costs": ours("--tp", 2, "--costs"),
    "1 rank, base": ours(ranks=1, program="base"),
    "dp 2, base": ours(program="base"),
    "longest, 1 rank": longest(1),
    **{f"longest, cp 2, {method}": longest(RANKS, "--cp", RANKS, "--method", method, *AT_ONCE[method]) for method in METHODS},
    "tiles": tiles,
    "GEMMs of dp 2": products(samples_in=RANKS),
    "GEMMs of tp 2": products(parts=RANKS),
    "GEMMs of 1 rank": products(ranks=1),
    "GEMMs of 1 rank, without attention": products(ranks=1, attention=False),
    "GEMMs of cp 2, without attention": products(tokens_in=RANKS, attention=False),
}


def products_of(run, model_name):
    """Returns the name of the run of the GEMMs alone that a run contains, or None. Whole matrices of attention's scores do not fit
    into memory for the model "long"."""
    if run in ("dp 2", "tp 2", "tp 2, sequence"):
        return "GEMMs of " + run.removesuffix(", sequence")
    if run == "1 rank":
        return "GEMMs of 1 rank" + ", without attention" * (model_name == "long")
    return "GEMMs of cp 2, without attention" if run.startswith("cp 2") else None


@dataclasses.dataclass(frozen=True)
class Check:
    """A number that one repetition's results of the `runs` give, in this order, and its target."""
    title: str
    runs: tuple
    value: typing.Callable
    target: float
    is_least: bool = True  # the target is the least value, not the largest
    has_equal_losses: bool = False  # the losses of the runs must have equal bits

    def holds(self, value):
        return value >= self.target if self.is_least else value <= self.target


def speed(run, other, target, times=1, **more):
    """Compares tokens/s with those of another run, of which `times` are counted."""
    return Check(f"{run} / {f'{times} x ' * (times > 1)}{other}", (run, other),
                 lambda a, b: a["tokens_per_second"] / (times * b["tokens_per_second"]), target, **more)


def activations(run, other, target):
    return Check(f"activations of {run} / {other}", (run, other), lambda a, b: a["activations"] / b["activations"], target, False)


def share(run, other, target):
    """Compares the shares of GEMMs alone in a step."""
    return Check(f"share of GEMMs, {other} - {run}", (run, f"GEMMs of {run}", other, f"GEMMs of {other}"),
                 lambda a, of_a, b, of_b: of_b["step_seconds"] / b["step_seconds"] - of_a["step_seconds"] / a["step_seconds"],
                 target, False)


def seconds_of_head(result):
    return sum(cost["compute"] + cost["transfer"] for name, cost in result["costs"].items() if name in ("F head", "B head"))


def beside_dp(target):
    return [speed("tp 2", "dp 2", target), share("tp 2", "dp 2", 0.04)]


def tiled(layer, target):
    return Check(f"seconds of the {layer} in tiles / untiled", ("tiles",), lambda result: result[f"tile_{layer}"], target, False)


SEQUENCE = [speed("tp 2, sequence", "tp 2", 0.97), activations("tp 2, sequence", "tp 2", 0.8)]
PEERS = [speed(run, f"{peer_name} {run}", 1.0) for peer_name, run in
         (("PyTorch", "tp 2"), ("PyTorch", "tp 2, sequence"), ("DeepSpeed", "tp 2"))]
CONTEXT = [check for method in METHODS for check in
           (speed(f"cp 2, {method}", "1 rank", 0.92, RANKS), activations(f"cp 2, {method}", "1 rank", 0.55))]
LONGEST = [Check(f"longest, cp 2, {method} / 1 rank", (f"longest, cp 2, {method}", "longest, 1 rank"),
                 lambda a, b: a["tokens"] / b["tokens"], 1.9) for method in METHODS]
LOSS = Check("seconds of the head, tp 2 / 1 rank", ("tp 2, costs", "1 rank, costs"),
             lambda a, b: seconds_of_head(a) / seconds_of_head(b), 0.56, False)
TILED = [tiled("head", 1.4), tiled("mlp_gelu_tanh", 1.25), tiled("mlp_swiglu", 1.25)]
BASE = [speed(run, f"{run}, base", 0.99, has_equal_losses=True) for run in ("1 rank", "dp 2")]

# By name: {(model, precision): checks}.
ROWS = {
    "dp": {("main", "fp32"): beside_dp(0.92), ("main", "bf16"): beside_dp(0.92), ("large", "fp32"): beside_dp(1.0)},
    "sequence": {("main", precision): SEQUENCE for precision in PRECISIONS},
    "peers": {(name, precision): PEERS for name in ("main", "large") for precision in PRECISIONS},
    "context": {("long", "fp32"): CONTEXT},
    "longest": {("long", "fp32"): LONGEST},
    "loss": {("main", precision): [LOSS] for precision in PRECISIONS},
    "tile": {("main", precision): TILED for precision in PRECISIONS},
    "base": {("main", precision): BASE for precision in PRECISIONS},
}
