#!/usr/bin/env python3
"""Measures the tokens/s of scripts/exp/gpt.lua with several communication backends and ZeRO stages, in alternation.

    python3 bench/backends.py --ranks 2 --backends mpi shm --stages 0 1

Each repetition runs every combination once, with a new mpirun. The losses of all steps must be equal in every bit for all
combinations, because sums have a fixed order. Each rank has one thread and is bound to one core.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ZTOOLKIT = ROOT / "build/release/bin/ztoolkit"


def run(options, backend, stage, folder):
    """Runs gpt.lua once. Returns the tokens/s of its steps after the first tenth, and the losses of all steps."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", ZT_LOG="warn", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    command = ["mpirun", "--bind-to", "core", "-n", options.ranks, ZTOOLKIT, "run", ROOT / "scripts/exp/gpt.lua",
               "--backend", backend, "--stage", stage, "--steps", options.steps, "--eval-every", 0, "--eval-batches", 1,
               "--generate", 0, "--folder", folder, "--name", "run", "--overwrite", *options.extra]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"backend {backend}, stage {stage} failed:\n{done.stdout}{done.stderr}")
    steps = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    steps = [step for step in steps if "seconds" in step]
    timed = steps[len(steps) // 10:]
    return sum(step["tokens"] for step in timed) / sum(step["seconds"] for step in timed), [step["loss"] for step in steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--backends", nargs="+", default=["mpi", "shm"])
    parser.add_argument("--stages", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("extra", nargs="*", help="further options for gpt.lua, after --")
    options = parser.parse_args()

    speeds, losses = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.repetitions):
            for stage in options.stages:
                for backend in options.backends:
                    speed, loss = run(options, backend, stage, pathlib.Path(folder))
                    speeds.setdefault((stage, backend), []).append(speed)
                    losses.setdefault((stage, backend), loss)
                    if losses[stage, backend] != loss:
                        sys.exit(f"backend {backend}, stage {stage}: two runs gave different losses")
    first = next(iter(losses.values()))
    for stage in options.stages:
        for backend in options.backends:
            values = speeds[stage, backend]
            median = statistics.median(values)
            ratio = median / statistics.median(speeds[stage, options.backends[0]])
            print(f"stage {stage}  {backend:10} {median:8.0f} tokens/s  spread {(max(values) - min(values)) / median:5.1%}  "
                  f"{ratio:.3f} of {options.backends[0]}  losses equal: {losses[stage, backend] == first}")
    sys.exit(0 if all(loss == first for loss in losses.values()) else 1)


if __name__ == "__main__":
    main()
