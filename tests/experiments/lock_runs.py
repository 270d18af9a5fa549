#!/usr/bin/env python3
"""Starts a second run in the folder of a run that has not ended. The second run must be refused, also while the first is
suspended (SIGSTOP). After the first run was killed, a new run must start.

    lock_runs.py ZTOOLKIT MPIRUN SCRIPT TOKENS FOLDER
"""

import pathlib
import shutil
import signal
import subprocess
import sys

ZTOOLKIT, MPIRUN, SCRIPT, TOKENS, FOLDER = sys.argv[1:]
RUN = pathlib.Path(FOLDER) / "held"
LIMIT = 120  # seconds within which a command must end


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
        in_flight = RUN / "step_99999999.partial-12ab"  # looks like a save that is being written
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
        fail("the run that was killed has left no run.lock, so taking one over is not tested")
    subprocess.run(command(4, 0), check=True, timeout=LIMIT)  # runs to step 4, or ends at once if step 4 was saved
    if (RUN / "run.lock").exists() or in_flight.exists():
        fail("run.lock or the incomplete save still exists after a run that ended normally")
    print("a second run is refused while the first lives")


main()
