"""Checks that TensorBoard, MLflow and W&B read the records of a run. Usage: read_records.py ZTOOLKIT

A run of five steps is resumed at step 3, as after a crash. Each package must find the values of the resumed run, those of W&B
and MLflow in what `ztoolkit export-run` writes."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", WANDB_ERROR_REPORTING="false")  # tests call no server
os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"  # newer versions of MLflow refuse file stores without it

from mlflow import MlflowClient
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


def check_mlflow(run, store):
    ztoolkit("export-run", run, "--mlflow", store)
    client = MlflowClient(f"file://{store}")
    (found,) = client.search_runs(["0"])
    check((found.info.run_name, found.info.status) == ("a", "FINISHED"), f"MLflow reads the run {found.info}")
    check(found.data.params == {"lr": "0.5", "layers": "[1,2]", "ranks": "1"}, f"MLflow reads the options {found.data.params}")
    losses = [(metric.step, metric.value) for metric in client.get_metric_history(found.info.run_id, "loss")]
    check(losses == LOSSES, f"MLflow reads the losses {losses}")
    check(found.data.metrics["stats/norm"] == 1e6, f"MLflow reads the metrics {found.data.metrics}")


def check_wandb(run, folder):
    ztoolkit("export-run", run, "--wandb-offline", folder, "--project", "p")
    (file,) = folder.glob("offline-run-*/run-*.wandb")
    wandb = [sys.executable, "-m", "wandb"]
    text = subprocess.run([*wandb, "leet", "inspect", "--json", file], capture_output=True, text=True, check=True).stdout
    records = [json.loads(line) for line in text.splitlines()]
    kinds = [record["type"] for record in records]
    check(kinds == ["header", "run"] + 6 * ["history"] + ["summary", "exit"], f"W&B reads the records {kinds}")
    start = records[1]["run"]
    check((start["project"], start["display_name"]) == ("p", "a"), f"W&B reads the run {start}")
    losses = [(record["history"]["step"].get("num", 0), record["history"]["item"]["loss"]) for record in records[2:-2]]
    check(losses == LOSSES, f"W&B reads the losses {losses}")
    done = subprocess.run([*wandb, "sync", "--dry-run", file.parent], capture_output=True, text=True)
    check("Would sync 1 run" in done.stdout + done.stderr, f"W&B would sync: {done.stdout}{done.stderr}")


with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary)
    (folder / "run.lua").write_text(SCRIPT % folder)
    ztoolkit("run", folder / "run.lua")
    check_tensorboard(folder / "a")
    check_mlflow(folder / "a", folder / "mlruns")
    check_wandb(folder / "a", folder / "wandb")
    print("TensorBoard, MLflow and W&B: equal")
