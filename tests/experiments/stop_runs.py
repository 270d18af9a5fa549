#!/usr/bin/env python3
"""Tells runs to stop by a signal: they save at the end of a step and end with status 75; started again they go on from there.

    stop_runs.py ZTOOLKIT MPIRUN SCRIPT TOKENS FOLDER
"""

import pathlib
import shutil
import signal
import subprocess
import sys
import time

ZTOOLKIT, MPIRUN, SCRIPT, TOKENS, FOLDER = sys.argv[1:]
STOPPED = 75
LIMIT = 60  # seconds until it has ended


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def stop(name, launcher, number):
    """Starts a run that saves rarely, signals it, returns the step that it says it begins behind and the one it ends at."""
    command = [*launcher, ZTOOLKIT, "run", SCRIPT, "--data", TOKENS, "--folder", FOLDER, "--name", name, "--steps", "100000",
               "--every", "1000000", "--pause", "0.02"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begins = int(run.stdout.readline().removeprefix("begins behind step "))
    time.sleep(1)
    run.send_signal(number)
    try:
        output, errors = run.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        run.kill()
        fail(f"{name}: signal {number} did not end it within {LIMIT} s")
    if run.returncode != STOPPED:
        fail(f"{name}: it ended with {run.returncode} instead of {STOPPED}:\n{output}{errors}")
    if "told to stop: saved after step" not in errors:
        fail(f"{name}: it does not say that it was told to stop:\n{errors}")
    return begins, int((pathlib.Path(FOLDER) / name / "latest").read_text().strip().removeprefix("step_"))


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    mpirun = [MPIRUN, "--oversubscribe", "-n", "2"]
    for name, launcher, number in (("usr2", [], signal.SIGUSR2), ("term", [], signal.SIGTERM), ("mpi", mpirun, signal.SIGUSR2)):
        begins, first = stop(name, launcher, number)
        if begins != 0 or first == 0:
            fail(f"{name}: began behind step {begins}, stopped behind step {first}")
        begins, second = stop(name, launcher, number)
        if begins != first or second <= first:
            fail(f"{name}: stopped behind step {first}, then began behind {begins} and stopped behind {second}")
        print(f"{name}: stopped behind step {first}, went on, stopped behind step {second}")


main()
