#!/usr/bin/env python3
"""Starts a run that saves often, ROUNDS times, and kills one rank or all ranks with SIGKILL each time.

    kill_runs.py ROUNDS ZTOOLKIT MPIRUN SCRIPT TOKENS FOLDER [--moved]

After every kill, the latest checkpoint must pass `ztoolkit ckpt verify` and must not be older than after the kill before. At last
the run is continued to its end, and its checkpoint is compared with that of an undisturbed run: all tensors must be equal bit by
bit. With --moved the runs that are killed train at stage 3 with all data in files, of which no kill may leave one; the undisturbed
run has its data in memory.
"""

import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import time

ROUNDS, ZTOOLKIT, MPIRUN, SCRIPT, TOKENS, FOLDER = sys.argv[1:7]
IS_MOVED = sys.argv[7:] == ["--moved"]
SWAP = pathlib.Path(FOLDER) / "swap"
LIMIT = 60  # seconds within which a run with a killed rank must end
RANKS = 2


def command(name, steps):
    return [MPIRUN, "--oversubscribe", "-n", str(RANKS), ZTOOLKIT, "run", SCRIPT, "--data", TOKENS, "--folder", FOLDER,
            "--name", name, "--steps", str(steps), "--stage", "3" if IS_MOVED else "1",
            *(["--move", str(SWAP)] if IS_MOVED and name == "killed" else [])]


def ranks_of(mpirun):
    """Returns the process ids of the ranks of a running mpirun."""
    ranks = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            parent = entry.joinpath("stat").read_text().rsplit(")", 1)[1].split()[1]
        except OSError:  # the process has ended meanwhile
            continue
        if int(parent) == mpirun:
            ranks.append(int(entry.name))
    return ranks


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def kill(process, whole):
    """Kills one rank of a run, or with `whole` mpirun and all ranks, as the kernel does when memory is short."""
    ranks = ranks_of(process.pid)
    victims = ranks + [process.pid] if whole or not ranks else [random.choice(ranks)]
    for victim in victims:
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
    try:
        process.wait(LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        fail(f"a run whose rank was killed still runs after {LIMIT} s")


def latest_step(name):
    """Verifies the latest checkpoint and returns its step; 0 if there is none."""
    run = pathlib.Path(FOLDER) / name
    if not run.joinpath("latest").exists():
        return 0
    verified = subprocess.run([ZTOOLKIT, "ckpt", "verify", run], capture_output=True, text=True)
    if verified.returncode != 0:
        fail(f"the latest checkpoint is damaged: {verified.stdout}{verified.stderr}")
    return int(run.joinpath("latest").read_text().strip().removeprefix("step_"))


def run_to_end(name, steps):
    done = subprocess.run(command(name, steps), capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        fail(f"an undisturbed run ended with status {done.returncode}: {done.stdout}{done.stderr}")


def main():
    random.seed(8)
    shutil.rmtree(FOLDER, ignore_errors=True)
    SWAP.mkdir(parents=True)
    step, incomplete, kinds = 0, 0, {"one rank": 0, "all": 0}
    for round_ in range(int(ROUNDS)):
        process = subprocess.Popen(command("killed", 1_000_000), stdout=subprocess.PIPE, text=True, start_new_session=True)
        begins = process.stdout.readline()
        if not begins.startswith(f"resumes from step {step}\n"):
            fail(f"round {round_} says '{begins.strip()}', but step {step} was saved")
        time.sleep(random.uniform(0, 1))
        whole = random.random() < 0.5
        kinds["all" if whole else "one rank"] += 1
        kill(process, whole)
        process.stdout.close()
        if left := list(SWAP.iterdir()):
            fail(f"a kill has left files of data: {left}")
        found = latest_step("killed")
        if found < step:
            fail(f"the latest checkpoint was of step {step} and is now of step {found}")
        step = found
        incomplete += len(list(pathlib.Path(FOLDER).glob("killed/step_*.partial-*")))
    if step == 0:
        fail("no run lived long enough to save a checkpoint, so nothing was tested")
    steps = step + 3
    for name in ("killed", "whole"):
        run_to_end(name, steps)
    differ = subprocess.run([ZTOOLKIT, "ckpt", "diff", f"{FOLDER}/killed", f"{FOLDER}/whole"], capture_output=True, text=True)
    if differ.returncode != 0:
        fail(f"the run that was killed has other values than the undisturbed run:\n{differ.stdout}{differ.stderr}")
    print(f"{ROUNDS} kills ({kinds['one rank']} of one rank, {kinds['all']} of all), {steps} steps: {differ.stdout.strip()}; "
          f"incomplete checkpoints left by kills: {incomplete}")


main()
