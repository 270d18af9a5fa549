"""Checks that TensorBoard reads what zt.run writes. Usage: read_records.py ZTOOLKIT

A run of five steps is resumed at step 3, as after a crash. The package must find the values of the resumed run."""

import pathlib
import subprocess
import sys
import tempfile

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SCRIPT = """
local zt = require "zt"
local function open(more)
  return zt.run{name = "a", folder = "%s", tensorboard = true, resume = more, options = {lr = 0.5, layers = {1, 2}}}
end
local run = open(false)
for step = 0, 4 do run:log(step, {loss = 4 - step / 2, lr = 0.1, stats = {norm = step}}) end
run:finish()
run = open(true)
run:rewind(3)
for step = 3, 5 do run:log(step, {loss = 40 + step, lr = 0.1, stats = {norm = 1e6}}) end
run:finish()
"""
LOSSES = [(0, 4.0), (1, 3.5), (2, 3.0), (3, 43.0), (4, 44.0), (5, 45.0)]


def ztoolkit(*words):
    done = subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ztoolkit {words[0]} ended with {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def check(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


def check_tensorboard(run):
    """The restart hides the steps from 3 on that the first file has."""
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    check(events.Tags()["scalars"] == ["loss", "lr", "stats/norm"], f"TensorBoard finds the tags {events.Tags()}")
    losses = [(event.step, event.value) for event in events.Scalars("loss")]
    check(losses == LOSSES, f"TensorBoard reads the losses {losses}")
    check(abs(events.Scalars("lr")[0].value - 0.1) < 2**-27, "TensorBoard reads another rate")
    times = [event.wall_time for event in events.Scalars("loss")]
    check(times == sorted(times) and times[0] > 1.7e9, f"TensorBoard reads the times {times}")


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    (folder / "run.lua").write_text(SCRIPT % folder)
    ztoolkit("run", folder / "run.lua")
    check_tensorboard(folder / "a")
    print("TensorBoard: equal")
