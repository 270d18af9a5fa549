#!/usr/bin/env python3
"""Compares the bytes per rank that `ztoolkit plan` counts with the formulas of the ZeRO paper.

    python3 bench/plan_table.py

With bf16 parameters and gradients, fp32 master weights and Adam states, P parameters on N ranks need 16 P, 4 P + 12 P / N,
2 P + 14 P / N, 16 P / N bytes at stages 0 to 3. At stages 2 and 3 the plan is above the formula by the buffers for the whole
gradients and parameters of two or three layers.
"""

import argparse
import json
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
FORMULAS = (
    ("16P", lambda p, n: 16 * p),
    ("4P+12P/N", lambda p, n: 4 * p + 12 * p / n),
    ("2P+14P/N", lambda p, n: 2 * p + 14 * p / n),
    ("16P/N", lambda p, n: 16 * p / n),
)
STATES = ("parameters", "master", "gradients", "optimizer")


def plan(ztoolkit, model, stage, ranks):
    """Returns (number of parameters, bytes per rank by kind of memory, seconds of the command)."""
    begin = time.monotonic()
    done = subprocess.run([ztoolkit, "plan", str(ROOT / "bench/plan_models.lua"), "--model", model, "--stage", str(stage), "--ranks",
                           str(ranks), "--json"], capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    kinds = json.loads(done.stdout)["kinds"]
    if len(kinds) != 1:
        raise SystemExit(f"{model}: data-parallel ranks are alike, but there are {len(kinds)} kinds")
    return int(re.search(r"parameters (\d+)", done.stderr)[1]), kinds[0]["memory"], seconds


def gib(count):
    return f"{count / 2**30:.2f}" if count < 2**40 else f"{count / 2**30:.0f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ztoolkit", default=str(ROOT / "build/release/bin/ztoolkit"))
    parser.add_argument("--models", nargs="+", default=["1.5B", "7B", "13B", "70B", "1T"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 64, 1024])
    args = parser.parse_args()
    print("| model | stage | ranks | states GiB | formula GiB | over | formula | activations GiB | seconds |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in args.models:
        for stage, (name, formula) in enumerate(FORMULAS):
            for ranks in args.ranks:
                parameters, memory, seconds = plan(args.ztoolkit, model, stage, ranks)
                states = sum(memory[kind] for kind in STATES)
                expected = formula(parameters, ranks)
                if states < expected:
                    raise SystemExit(f"{model} at stage {stage} on {ranks} ranks: {states} bytes are less than {name} = {expected}")
                print(f"| {model} | {stage} | {ranks} | {gib(states)} | {gib(expected)} | {states / expected:.3f} | {name} | "
                      f"{gib(memory['activations'])} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
