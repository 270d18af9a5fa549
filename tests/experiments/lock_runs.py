#!/usr/bin/env python3
"""Starts a run in the folder of one that has not ended: it is refused, whether the first works or is suspended. Killed, the first
one is in nobody's way.

    lock_runs.py ZTOOLKIT MPIRUN SCRIPT TOKENS FOLDER
"""

import pathlib
import shutil
import signal
import subprocess
import sys

ZTOOLKIT, MPIRUN, SCRIPT, TOKENS, FOLDER = sys.argv[1:]
RUN = pathlib.Path(FOLDER) / "held"
LIMIT = 120  # seconds for a command that has to end


def fail(text):
    print(f"FAILED: {text}")
    sys.exit(1)


def command(steps, pause):
    return [ZTOOLKIT, "run", SCRIPT, "--data", TOKENS, "--folder", FOLDER, "--name", RUN.name, "--steps", str(steps),
            "--pause", str(pause)]


def expect_refusal(words, holder):
    ended = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
    if ended.returncode == 0 or "belongs to a run that has not ended" not in ended.stderr:
        fail(f"{words} was not refused (status {ended.returncode}):\n{ended.stdout}{ended.stderr}")
    if f"process {holder} on host" not in ended.stderr:
        fail(f"the refusal does not name process {holder}:\n{ended.stderr}")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    first = subprocess.Popen(command(100000, 0.02), stdout=subprocess.PIPE, text=True)
    try:
        first.stdout.readline()
        in_flight = RUN / "step_99999999.partial-12ab"  # as of a save that is being written
        in_flight.mkdir()
        expect_refusal(command(4, 0), first.pid)
        expect_refusal([MPIRUN, "--oversubscribe", "-n", "2", *command(4, 0)], first.pid)
        expect_refusal([ZTOOLKIT, "ckpt", "gc", str(RUN)], first.pid)
        first.send_signal(signal.SIGSTOP)
        expect_refusal(command(4, 0), first.pid)
        first.send_signal(signal.SIGCONT)
        if not in_flight.exists():
            fail("a save in flight was removed")
        if first.poll() is not None:
            fail(f"the first run ended with {first.returncode}")
    finally:
        first.kill()
        first.wait()
    if not (RUN / "run.lock").exists():
        fail("the run that was killed has left no run.lock: nothing is taken over")
    subprocess.run(command(4, 0), check=True, timeout=LIMIT)  # done already, or goes on to step 4
    if (RUN / "run.lock").exists() or in_flight.exists():
        fail("run.lock or what saves have left is there after a run that ended well")
    print("a second run is refused while the first lives")


main()
