#!/usr/bin/env python3
"""Compares the losses of 20 steps at all ZeRO stages, in fp32 and bf16, on 1, 2 and 4 ranks, with 1 and 2 micro-batches.

    python3 bench/stage_losses.py

Each row of the table is one precision, number of ranks and number of micro-batches. It shows the first and the last loss of stage
0, and whether the losses of all steps at stages 1, 2 and 3 equal those of stage 0 in every bit, with one copy of the parameters
per rank and with one copy per node. Exits with status 1 if any differ.
"""

import argparse
import json
import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent


def losses(args, ranks, *options):
    variables = os.environ | {"OMP_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
                              "OMPI_MCA_mpi_yield_when_idle": "1", "ZT_LOG": "warn"}
    command = ["mpirun", "--oversubscribe", "-n", str(ranks), args.ztoolkit, "run", str(ROOT / "bench/stage_losses.lua"),
               "--steps", str(args.steps), *map(str, options)]
    done = subprocess.run(command, env=variables, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    return [float.fromhex(x) for x in json.loads(done.stdout)["losses"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--ztoolkit", default=str(ROOT / "build/release/bin/ztoolkit"))
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    print("| precision | ranks | micro-batches | reduce_every | first loss | last loss | stages 1, 2, 3 | one copy per node |")
    print("|---|---|---|---|---|---|---|---|")
    all_equal = True
    for precision in ("fp32", "bf16"):
        for ranks in (1, 2, 4):
            for micro_batches, reduce_every in ((1, "step"), (2, "step"), (2, "micro_batch")):
                common = ("--precision", precision, "--micro_batches", micro_batches, "--reduce_every", reduce_every)
                first = losses(args, ranks, "--stage", 0, *common)
                equal = {}
                for shared in ("false", "true"):
                    equal[shared] = all(losses(args, ranks, "--stage", stage, "--node_shared", shared, *common) == first
                                        for stage in (1, 2, 3))
                all_equal = all_equal and all(equal.values())
                words = ["equal" if equal[shared] else "DIFFERENT" for shared in ("false", "true")]
                print(f"| {precision} | {ranks} | {micro_batches} | {reduce_every} | {first[0]:.6f} | {first[-1]:.6f} | {words[0]} | "
                      f"{words[1]} |", flush=True)
    return 0 if all_equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
