#!/usr/bin/env python3
"""Stops runs by a signal: they must save after the current step and end with status 75. A restart must resume from that step.

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
LIMIT = 60  # seconds within which a run must end after the signal


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def stop(name, launcher, number):
    """Starts a run that saves only when stopped, and signals it. Returns the step it resumes from and the step it saves."""
    command = [*launcher, ZTOOLKIT, "run", SCRIPT, "--data", TOKENS, "--folder", FOLDER, "--name", name, "--steps", "100000",
               "--every", "1000000", "--pause", "0.02"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    begins = int(run.stdout.readline().removeprefix("resumes from step "))
    time.sleep(1)
    run.send_signal(number)
    try:
        output, errors = run.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        run.kill()
        fail(f"{name}: the run did not end within {LIMIT} s after signal {number}")
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
            fail(f"{name}: began at step {begins}, stopped after step {first}")
        begins, second = stop(name, launcher, number)
        if begins != first or second <= first:
            fail(f"{name}: stopped after step {first}, then resumed from step {begins} and stopped after step {second}")
        print(f"{name}: stopped after step {first}, resumed, stopped after step {second}")


main()
