"""The DeepSpeed side of offload.py: its operator for files, its configuration, and runs that may fail."""

import ctypes.util
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))  # deepspeed_venv.py, train_vs.py

import deepspeed_venv
import train_vs

STAGE = 3  # the only ZeRO stage with which DeepSpeed keeps optimizer state or parameters in files
INSTALL = "run `scripts/setup.sh --oracle` and use `.venv-oracle/bin/python bench/peers/offload.py`"
# Compiles, beside what deepspeed_venv.py compiles, the operators of files and of the optimizer for state that is not in the
# accelerator's memory.
COMPILE = """
from deepspeed.accelerator import get_accelerator
for builder in ("CPUAdamBuilder", "AsyncIOBuilder"):
    get_accelerator().create_op_builder(builder).load()
"""
# DeepSpeed then reads and writes beside the update of other groups of parameters. By default all parameters are one group, with
# nothing to run beside; groups of 3e6 elements are as fast or faster, and take less memory. The group before, this one and the
# next need 12 buffers; with the default of 4 DeepSpeed stops: "ran out of swap buffers".
FILES = {"device": "nvme", "pin_memory": False}
OPTIMIZER = {**FILES, "buffer_count": 16, "pipeline_read": True, "pipeline_write": True}
GROUP = 3_000_000


def missing(options):
    """Makes DeepSpeed ready, with its operators compiled. Returns why that failed and what to do, or None. The first use takes
    minutes."""
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode != 0:
        return f"{sys.executable} has no PyTorch, with which DeepSpeed runs: {INSTALL}"
    if ctypes.util.find_library("aio") is None or not pathlib.Path("/usr/include/libaio.h").exists():
        return "DeepSpeed compiles its operator async_io with libaio: install Debian's package libaio-dev"
    try:
        options.python = deepspeed_venv.deepspeed_python()
        deepspeed_venv.step("compiling DeepSpeed's operators for files (minutes at the first time)", "its output says why",
                            [options.python, "-c", COMPILE])
    except SystemExit as failure:
        return str(failure.code)
    return None


def largest_parameter(options):
    """Returns the number of elements of the largest matrix."""
    return max(options.vocab, 4 * options.hidden) * options.hidden


def config_of(what, folder, options):
    """Returns the configuration for data in files of a folder. `what`: "memory", "optimizer" or "all", which is optimizer and
    parameters. The keys of --config override it."""
    zero = {}
    if what != "memory":
        zero = {"sub_group_size": GROUP, "offload_optimizer": {**OPTIMIZER, "nvme_path": str(folder)}}
    if what == "all":
        zero["offload_param"] = {**FILES, "nvme_path": str(folder), "buffer_count": 5, "buffer_size": largest_parameter(options)}
    return {**options.config, "zero_optimization": {**zero, **options.config.get("zero_optimization", {})}}


def last_error(text):
    """Returns the line of a log that names an exception, or its last line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if "Error" in line and "CalledProcess" not in line), lines[-1])


def run_of(what):
    """Returns the run of DeepSpeed with these data in files. It returns {message} if DeepSpeed fails."""
    def run(case):
        options = case.options
        with tempfile.TemporaryDirectory(dir=options.disk) as folder:
            command = [options.python, train_vs.ROOT / "bench/peers/ranks/train_vs_deepspeed_rank.py", "--stage", STAGE,
                       "--precision", case.precision, "--config", json.dumps(config_of(what, folder, options))]
            try:
                return train_vs.run_python(command, options, **deepspeed_venv.variables())
            except SystemExit as failure:
                return {"message": last_error(str(failure.code))}
    return run
