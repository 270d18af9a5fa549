#!/usr/bin/env python3
"""Kills a run of scripts/exp/rlhf in each of its phases, ROUNDS times, and resumes it each time.

    kill_rlhf.py NAME ROUNDS ZTOOLKIT MPIRUN FOLDER

NAME: grpo or ppo. One rank or all ranks get SIGKILL a moment after a phase has begun (kill_at.lua), and the run must end with an
error within 10 s. At last it is continued to its end. All tensors of its checkpoint, its samples, and its metrics but for times must
be those of an undisturbed run.
"""

import json
import pathlib
import random
import shutil
import subprocess
import sys
import time

NAME, ROUNDS, ZTOOLKIT, MPIRUN, FOLDER = sys.argv[1:6]
HERE = pathlib.Path(__file__).parent
SCRIPTS = HERE.parent.parent / "scripts" / "exp" / "rlhf"
LIMIT = 10  # seconds within which a run must end after a kill
ITERATIONS = 3 * int(ROUNDS)
PHASES = ["rollout", "score", "update", "save", "advantages"]
SMALL = ["--batch", "8", "--warmup", "2"]
START = ["--model", f"{FOLDER}/sft", "--folder", FOLDER]
OPTIONS = ["--iterations", str(ITERATIONS), "--save-every", "1", "--prompts", "6", "--n", "2", "--rows", "4", "--test", "0",
           "--print-answers", "0", "--micro-batches", "2"]
if NAME == "ppo":
    OPTIONS += ["--updates", "2", "--epochs", "2", "--ema", "0.9"]


def ranks(*words):
    return [MPIRUN, "--oversubscribe", "-n", "2", ZTOOLKIT, "run", *map(str, words)]


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def run_to_end(*words):
    done = subprocess.run(ranks(*words), capture_output=True, text=True, timeout=200)
    if done.returncode != 0:
        fail(f"{words} ended with status {done.returncode}: {done.stdout}{done.stderr}")


def killed_run(phase, call, rank, delay):
    """Runs the script until ranks are killed. Returns the seconds until the run has ended."""
    mark = pathlib.Path(FOLDER) / "mark"
    mark.unlink(missing_ok=True)
    words = ranks(HERE / "kill_at.lua", phase, call, rank, delay, mark, SCRIPTS / f"{NAME}.lua", "--name", "killed", *START,
                  *OPTIONS)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        fail(f"a run whose rank {rank} was killed in {phase} still runs")
    if not mark.exists():
        fail(f"a run ended with status {done.returncode} before call {call} of {phase}: {done.stdout}{done.stderr}")
    seconds = time.time() - mark.stat().st_mtime
    if done.returncode == 0:
        fail(f"a run whose rank {rank} was killed in {phase} ended with status 0")
    if seconds > LIMIT + float(delay):
        fail(f"a run whose rank {rank} was killed in {phase} ended after {seconds:.1f} s")
    return seconds


def lines_of(name, file):
    """Returns the lines of a file of a run, without times."""
    lines = []
    for line in (pathlib.Path(FOLDER) / name / file).read_text().splitlines():
        record = json.loads(line)
        lines.append({key: value for key, value in record.items() if "seconds" not in key and "per_second" not in key})
    return lines


def main():
    random.seed(5)
    shutil.rmtree(FOLDER, ignore_errors=True)
    model = ["--layers", "1", "--hidden", "16", "--heads", "2"]
    run_to_end(SCRIPTS / "sft.lua", "--folder", FOLDER, "--steps", "10", "--test", "0", *model, *SMALL)
    if NAME == "ppo":
        run_to_end(SCRIPTS / "reward.lua", *START, "--steps", "4", *SMALL)
    run_to_end(SCRIPTS / f"{NAME}.lua", "--name", "whole", *START, *OPTIONS)
    longest = 0
    for round_ in range(int(ROUNDS)):
        phase = PHASES[round_ % len(PHASES)]
        rank = random.choice(["0", "1", "all"])
        longest = max(longest, killed_run(phase, random.randint(1, 3), rank, f"{random.uniform(0, 0.03):.3f}"))
    run_to_end(SCRIPTS / f"{NAME}.lua", "--name", "killed", *START, *OPTIONS)
    differ = subprocess.run([ZTOOLKIT, "ckpt", "diff", f"{FOLDER}/killed", f"{FOLDER}/whole"], capture_output=True, text=True)
    if differ.returncode != 0:
        fail(f"the run that was killed has other values than the undisturbed one:\n{differ.stdout}{differ.stderr}")
    for file in ("samples.jsonl", "metrics.jsonl"):
        killed, whole = lines_of("killed", file), lines_of("whole", file)
        if killed != whole:
            first = next((pair for pair in zip(killed, whole) if pair[0] != pair[1]), (len(killed), len(whole)))
            fail(f"{file} of the run that was killed differs: {first[0]} in place of {first[1]}")
        if not whole:
            fail(f"{file} has no lines")
    print(f"{ROUNDS} kills, each run ended within {longest:.1f} s; {differ.stdout.strip()}")


main()
