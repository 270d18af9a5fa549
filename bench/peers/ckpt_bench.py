#!/usr/bin/env python3
"""Compares saves and loads of ztoolkit with the disk (fio, the same block size and depth) and with DeepSpeed, in alternation.

    .venv-oracle/bin/python bench/peers/ckpt_bench.py
    .venv-oracle/bin/python bench/peers/ckpt_bench.py --folder /mnt/scratch --repetitions 5 --side ours

A GPT of 109 M parameters with AdamW has 1.3 GB of state (12 bytes per parameter), sharded over 2 ranks. Each repetition runs in
this order: ztoolkit (three blocking saves, three asynchronous saves while steps run, a load of all, a load on one rank at stage
0, `ckpt export`); fio (2 processes write as many bytes, then read them); DeepSpeed (three saves, a load, zero_to_fp32, and the
conversion to its universal form). Seconds are medians over all runs. The times of ztoolkit and fio end when the data is on the
disk (fsync). DeepSpeed does not sync; a row shows the time of os.sync after its save. ztoolkit loads from the disk and bypasses
the page cache; DeepSpeed loads from the page cache, which holds what it has just written.

fio is in Debian's package fio. The first use with DeepSpeed makes .venv-deepspeed (see bench/peers/train_vs_deepspeed.py).
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import train_vs

MODEL = {"layers": 8, "hidden": 1024, "heads": 16, "vocab": 4096, "seq": 32}
RANKS = 2


def words(**options):
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def output_of(command, **variables):
    done = subprocess.run(list(map(str, command)), env=train_vs.environment(**variables), text=True, capture_output=True)
    if done.returncode != 0:
        train_vs.give_up(f"{' '.join(map(str, command[:4]))} ... failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def timed(action):
    began = time.monotonic()
    action()
    return time.monotonic() - began


def ours(options, folder):
    def run(ranks, *more):
        command = ["mpirun", "--bind-to", "core", "-n", ranks, options.ztoolkit, "run", train_vs.ROOT / "bench/peers/ckpt_bench.lua",
                   *words(folder=folder, **MODEL), *more]
        return json.loads(output_of(command).splitlines()[-1])

    result = run(RANKS, *words(stage=options.stage, saves=options.saves))
    result["load_elsewhere"] = run(1, "--only-load", *words(load_stage=0))["load"]
    result["export"] = timed(lambda: output_of([options.ztoolkit, "ckpt", "export", folder, f"{folder}/model.safetensors"]))
    return result


def fio(options, folder, bytes_):
    def rate(mode):
        command = ["fio", "--name=disk", f"--rw={mode}", "--bs=4M", "--iodepth=8", "--ioengine=io_uring", "--direct=1",
                   f"--numjobs={RANKS}", f"--size={bytes_ // RANKS}", f"--directory={folder}", "--group_reporting", "--end_fsync=1",
                   "--output-format=json"]
        report = json.loads(output_of(command))["jobs"][0]["write" if mode == "write" else "read"]
        return bytes_ / (report["runtime"] / 1000)

    return {"write": rate("write"), "read": rate("read")}


def deepspeed(options, folder):
    import deepspeed_venv  # imported here, because it needs a Python with PyTorch

    python, variables = deepspeed_venv.deepspeed_python(), deepspeed_venv.variables()
    port, log = str(train_vs.free_port()), folder / "log"
    command = [python, train_vs.ROOT / "bench/peers/ranks/ckpt_bench_rank.py",
               *words(folder=folder / "saved", stage=options.stage, saves=options.saves, **MODEL)]
    with open(log, "w") as stream:
        ranks = [subprocess.Popen(
            ["taskset", "--cpu-list", str(core), *map(str, command)], stdout=stream, stderr=stream,
            env=train_vs.environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS),
                                     MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **variables))
            for rank, core in enumerate(train_vs.cores()[:RANKS])]
        if any(rank.wait() for rank in ranks):
            train_vs.give_up(f"DeepSpeed failed:\n{log.read_text()[-3000:]}")
    line = next(line for line in log.read_text().splitlines() if line.startswith("RESULT "))
    result = json.loads(line.removeprefix("RESULT "))
    consolidate = ("from deepspeed.utils.zero_to_fp32 import convert_zero_checkpoint_to_fp32_state_dict as convert; "
                   f"convert('{folder}/saved', '{folder}/fp32', max_shard_size=None, tag='last')")
    result["consolidate"] = timed(lambda: output_of([python, "-c", consolidate], **variables))
    result["universal"] = timed(lambda: output_of(
        [python, "-m", "deepspeed.checkpoint.ds_to_universal", "--input_folder", folder / "saved/last", "--output_folder",
         folder / "universal", "--num_extract_workers", 2, "--num_merge_workers", 2], **variables))
    return result


def measure(options):
    results = {side: [] for side in ("ztoolkit", "disk", "DeepSpeed")}
    for repetition in range(options.repetitions):
        for side, run in (("ztoolkit", ours), ("disk", fio), ("DeepSpeed", deepspeed)):
            if side == "DeepSpeed" and options.side == "ours":
                continue
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                more = [results["ztoolkit"][0]["bytes"]] if side == "disk" else []
                results[side].append(run(options, pathlib.Path(folder), *more))
            print(f"{repetition + 1}/{options.repetitions} {side} {json.dumps(results[side][-1])}", file=sys.stderr, flush=True)
    return results


def table(results):
    runs, disk = results["ztoolkit"], results["disk"]
    bytes_ = runs[0]["bytes"]

    def all_of(side, key):
        return [value for run in results[side] for value in (run[key] if isinstance(run[key], list) else [run[key]])]

    def median(side, key):
        return statistics.median(all_of(side, key))

    write, read = median("disk", "write"), median("disk", "read")
    rows = [("what", "s", "GB/s", "of the disk's")]

    def add(what, seconds, of=None):
        rate = bytes_ / seconds
        rows.append((what, f"{seconds:.2f}", f"{rate / 1e9:.2f}", f"{rate / of:.2f}" if of else ""))

    add("disk: write (fio)", bytes_ / write)
    add("disk: read (fio)", bytes_ / read)
    add("save, blocking", median("ztoolkit", "blocking"), write)
    add("save, asynchronous: time of the call", median("ztoolkit", "blocked"))
    add("a copy of as many bytes in memory", median("ztoolkit", "copy"))
    add("save, asynchronous: until all is on the disk", median("ztoolkit", "background"), write)
    add("load", median("ztoolkit", "load"), read)
    add("load on one rank at stage 0", median("ztoolkit", "load_elsewhere"), read)
    add("export to safetensors, fp32", median("ztoolkit", "export"))
    if results["DeepSpeed"]:
        add("DeepSpeed: save, not synced", median("DeepSpeed", "save"), write)
        add("DeepSpeed: os.sync after the save", median("DeepSpeed", "sync"))
        add("DeepSpeed: load", median("DeepSpeed", "load"), read)
        add("DeepSpeed: zero_to_fp32", median("DeepSpeed", "consolidate"))
        add("DeepSpeed: conversion to universal", median("DeepSpeed", "universal"))
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    lines.insert(1, "|---" * 4 + "|")
    memory = max(run["memory_async"] for run in runs) / 2**20
    lines.append(f"\n{bytes_ / 1e9:.2f} GB on {RANKS} ranks. A snapshot takes {memory:.0f} MiB of rank 0, a blocking save "
                 f"{max(run['memory_blocking'] for run in runs) / 2**20:.0f} MiB. A step takes {median('ztoolkit', 'step'):.2f} s, "
                 f"{median('ztoolkit', 'steps_behind'):.2f} s while a save is written.")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=train_vs.ROOT / "build", help="a folder on the disk (build)")
    parser.add_argument("--repetitions", type=int, default=3, help="repetitions of all runs (3)")
    parser.add_argument("--saves", type=int, default=3, help="blocking saves per run, and as many asynchronous saves (3)")
    parser.add_argument("--stage", type=int, choices=range(1, 4), default=1, help="ZeRO stage (1)")
    parser.add_argument("--side", choices=("ours", "both"), default="both", help="ours: leave DeepSpeed out (both)")
    train_vs.add_common_arguments(parser)
    options = parser.parse_args()
    if shutil.which("fio") is None:
        train_vs.give_up("fio is missing, which measures the disk: install Debian's package fio")
    print(table(measure(options)))


if __name__ == "__main__":
    main()
