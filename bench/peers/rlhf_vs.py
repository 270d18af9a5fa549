#!/usr/bin/env python3
"""Measures iterations of fine-tuning by ztoolkit, and by TRL, PEFT and bitsandbytes, on the CPU, in alternation.

    .venv-rlhf/bin/python bench/peers/rlhf_vs.py                              all rows, both sizes, one thread each
    .venv-rlhf/bin/python bench/peers/rlhf_vs.py --cores 2 --rows grpo --sizes 0.8M

Both sides read the same random Llama model and the same batches, in fp32, with AdamW. Rows: a step of sft, of lora and of qlora
(nf4), on sequences of 32 to 128 tokens, packed by both sides (row_padded: padded by TRL); a step of dpo with a reference of other
weights; an iteration of grpo (8 answers of 64 tokens to each prompt of 32, one update, beta 0) and of ppo (actor, critic,
reference, reward model, one answer to each prompt, one update; TRL has no PPOTrainer: ranks/rlhf_vs_ppo.py has its formulas).

With --cores 2 ztoolkit runs as 2 ranks of one thread, and the peer as one process with 2 threads, or with --ddp as 2 ranks of
DistributedDataParallel (all rows but ppo). Prints medians of seconds per iteration, the peer's over ztoolkit's with the least and
the largest of the repetitions, and the same of processor time, which other load of the machine changes less; on 2 cores it also
counts what ranks spend in waiting for each other. Fails if the first losses of sft, lora or dpo differ by more than --tolerance,
those of qlora by ten times that, since both sides round nf4 in their own way.
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import needs

needs.packages("bitsandbytes", "peft", "torch", "transformers", "trl", environment=".venv-rlhf")

import importlib.metadata

import train_vs
from ranks import rlhf_vs_turns

HERE = pathlib.Path(__file__).resolve().parent
SIZES = ("0.8M", "27.4M")
# By row: what the peer runs.
PEERS = {"sft": ("sft", "sft_padded"), "lora": ("lora", "lora_padded"), "qlora": ("qlora", "qlora_padded"), "dpo": ("dpo",),
         "grpo": ("grpo",), "ppo": ("ppo",)}
GOALS = {"sft": 1.3, "lora": 1.3, "dpo": 1.5, "grpo": 3.0, "ppo": 2.0}
ITERATIONS = {"0.8M": {"sft": 6, "lora": 6, "qlora": 6, "dpo": 4, "grpo": 2, "ppo": 1}, "27.4M": {}}  # of a turn; else 1
LOOSE = 10  # times the tolerance, for nf4
VERSIONS = ("torch", "transformers", "trl", "peft", "bitsandbytes")


def stat_fields(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def processor_seconds(root):
    """Returns the processor time of a process, its threads and its descendants."""
    parents, ticks = {}, {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = stat_fields(entry.name)
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)], ticks[int(entry.name)] = int(fields[1]), int(fields[11]) + int(fields[12])

    def is_below(pid):
        while pid in parents and pid != root:
            pid = parents[pid]
        return pid == root

    return sum(spent for pid, spent in ticks.items() if is_below(pid)) / os.sysconf("SC_CLK_TCK")


class Side:
    """A process that loads its models once, and then runs iterations when it is asked for."""

    def __init__(self, name, command, folder, threads):
        self.name, self.turn, self.folder = name, 0, folder
        folder.mkdir()
        self.log = open(folder / "log", "w+")
        environment = train_vs.environment(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads), HF_HUB_OFFLINE="1")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log, env=environment)

    def run(self, iterations, timeout):
        """Returns seconds and processor seconds per iteration, and the last loss."""
        before, deadline = processor_seconds(self.process.pid), time.monotonic() + timeout
        rlhf_vs_turns.write(self.folder / f"go.{self.turn}", str(iterations))
        done = self.folder / f"done.{self.turn}"
        while not done.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.log.seek(0)
                what = "did not answer in time (--timeout)" if self.process.poll() is None else "has ended"
                train_vs.give_up(f"the side {self.name} {what}. The end of its output:\n{self.log.read()[-2000:]}")
            time.sleep(rlhf_vs_turns.WAIT_SECONDS)
        result = json.loads(done.read_text())
        self.turn += 1
        spent = processor_seconds(self.process.pid) - before
        return result["seconds"] / iterations, spent / iterations, result["loss"]

    def stop(self):
        rlhf_vs_turns.write(self.folder / f"go.{self.turn}", "0")
        train_vs.end([self.process])


def sides_of(row, folder, scratch, options):
    """Starts ztoolkit and the peers of a row."""
    ranks = ["mpirun", "--bind-to", "core", "-n", options.cores] if options.cores > 1 else []
    own = [*ranks, options.ztoolkit, "run", HERE / "rlhf_vs.lua", "--folder", folder, "--row", row, "--lr", options.rate,
           "--seq", options.seq, "--turns", scratch / "ztoolkit"]
    sides = [Side("ztoolkit", own, scratch / "ztoolkit", 1)]
    has_ranks = options.ddp and row != "ppo"
    threads = 1 if has_ranks else options.cores
    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", options.cores] if has_ranks else []
    for peer in PEERS[row]:
        command = [sys.executable, *start, HERE / "ranks/rlhf_vs_trl.py", folder, peer, scratch / peer, threads, options.rate]
        sides.append(Side(peer, command, scratch / peer, threads))
    return sides


def check_losses(row, losses, tolerance):
    """Fails if the sides have not computed the same. The losses of grpo and ppo are 0 before the first update."""
    bound = {"qlora": LOOSE * tolerance, "grpo": None, "ppo": None}.get(row, tolerance)
    for name, loss in losses.items():
        if bound is not None and not abs(loss - losses["ztoolkit"]) <= bound * abs(losses["ztoolkit"]):
            train_vs.give_up(f"{row}: the first loss of {name} is {loss}, and that of ztoolkit {losses['ztoolkit']}")


def measure(row, size, folder, options):
    """Returns the (seconds, processor seconds) of each repetition, by side."""
    iterations = options.iterations or ITERATIONS[size].get(row, 1)
    with tempfile.TemporaryDirectory() as scratch:
        sides = sides_of(row, folder, pathlib.Path(scratch), options)
        try:
            check_losses(row, {side.name: side.run(1, options.timeout)[2] for side in sides}, options.tolerance)
            times = {side.name: [] for side in sides}
            for repetition in range(options.repetitions):
                for side in sides if repetition % 2 == 0 else reversed(sides):
                    times[side.name].append(side.run(iterations, options.timeout)[:2])
        finally:
            for side in sides:
                side.stop()
    return times


def ratios_text(times, peer, kind):
    ratios = [theirs[kind] / ours[kind] for theirs, ours in zip(times[peer], times["ztoolkit"])]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} .. {max(ratios):.2f})"


def print_row(size, row, times):
    def seconds(name):
        return statistics.median(wall for wall, _ in times[name])

    for peer in PEERS[row]:
        print(f"| {size} | {peer} | {seconds('ztoolkit'):.4f} | {seconds(peer):.4f} | {ratios_text(times, peer, 0)} | "
              f"{ratios_text(times, peer, 1)} | {GOALS.get(row, '')} |", flush=True)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    parser.add_argument("--cores", type=int, default=1, choices=(1, 2), help="threads of the peer, and ranks of ztoolkit")
    parser.add_argument("--ddp", action="store_true", help="the peer has ranks in place of threads")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=0, help="of a repetition; default: by row and size")
    parser.add_argument("--seq", type=int, default=0, help="positions of ztoolkit's packed rows; default: as fit a batch best")
    parser.add_argument("--rate", type=float, default=1e-5, help="of AdamW")
    parser.add_argument("--tolerance", type=float, default=1e-4, help="relative difference of the first losses")
    parser.add_argument("--timeout", type=float, default=300, help="seconds that a turn of a side may take")
    parser.add_argument("--ztoolkit", type=pathlib.Path, default=train_vs.ROOT / "build/release/bin/ztoolkit", help="our program")
    options = parser.parse_args()
    if not options.ztoolkit.exists():
        parser.error(f"there is no {options.ztoolkit}: build it (cmake --build build/release), or give its path")
    if options.ddp and options.cores == 1:
        parser.error("--ddp needs --cores 2")
    if options.repetitions < 1 or options.iterations < 0:
        parser.error("--repetitions must be at least 1, and --iterations at least 0")
    return options


def main():
    options = parsed()
    signal.signal(signal.SIGTERM, train_vs.terminated)
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS) + f"; {options.cores} cores"
          f"{' by ranks' if options.ddp else ''}, medians of {options.repetitions} (least .. largest), "
          f"load {os.getloadavg()[0]:.1f}")
    print("| size | row | ztoolkit, s | peer, s | peer / ztoolkit | processor time | goal |\n|---|---|---|---|---|---|---|")
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, HERE / "ranks/rlhf_vs_files.py", size, scratch]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode != 0:
                train_vs.give_up(f"the models and the data cannot be written:\n{done.stdout[-2000:]}")
            for row in options.rows:
                print_row(size, row, measure(row, size, scratch, options))
    print(f"load at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
