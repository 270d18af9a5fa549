"""Functions shared by the training benchmarks train_vs_*.py, pipelines.py, moe_vs_deepspeed.py and tensor_parallel.py, and by
ckpt_bench.py: batches, runs of all sides, statistics. `ranks` has the scripts that run as a rank of PyTorch or DeepSpeed.

The ranks of a run read parameters.f32, parameters.json and batches.i64 from a folder. Rank 0 writes result.json to its subfolder
`run`. There each rank also writes marks, files NAME.RANK: `idle` when it has started (with its process id and the bytes that it
holds), `ready` when the model is built, and `timed` when the timed steps begin.
"""

import itertools
import json
import os
import pathlib
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import time

import needs

needs.packages("numpy")

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOOK_SECONDS = 0.02  # time between two checks of a run's memory and of its end


def write_batches(options, fold=False):
    """Writes batches.i64: windows of the corpus at random positions, from a fixed seed. With `fold`, tokens are taken modulo the
    vocabulary."""
    if not options.data.exists():
        give_up(f"there is no {options.data} to train on: make it with scripts/corpus.sh, or give --data")
    corpus = numpy.load(options.data, mmap_mode="r")
    generator = numpy.random.default_rng(1)
    starts = generator.integers(0, len(corpus) - options.seq - 1, options.steps * options.batch)
    batches = numpy.stack([corpus[start : start + options.seq + 1] for start in starts]).astype(numpy.int64)
    if fold:
        batches %= options.vocab
    if batches.max() >= options.vocab:
        give_up(f"{options.data} has token {batches.max()}, but --vocab is {options.vocab}: give a larger --vocab")
    batches.tofile(options.folder / "batches.i64")


def held_bytes(pid="self"):
    """Returns the bytes of a process's anonymous and shared memory. Each of n processes that share a page counts 1/n of it, so
    the sum over the ranks of a node counts the page once."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith(("Pss_Anon:", "Pss_Shmem:")))


class Memory:
    """Measures the memory of a run's ranks between the marks `ready` and `timed`, in the untimed first steps."""

    def __init__(self, folder, ranks):
        self.folder, self.ranks = folder, range(ranks)
        self.peak = 0

    def marked(self, name):
        return all((self.folder / f"{name}.{rank}").exists() for rank in self.ranks)

    def look(self):
        if not self.marked("ready") or self.marked("timed"):
            return
        try:
            self.peak = max(self.peak, sum(held_bytes(idle["pid"]) for idle in self.idle()))
        except (FileNotFoundError, ProcessLookupError):
            pass  # a rank has ended: watch() reports its exit status

    def idle(self):
        return [json.loads((self.folder / f"idle.{rank}").read_text()) for rank in self.ranks]

    def bytes_per_rank(self):
        """Returns the peak, per rank, minus the memory that the ranks held before the model was built."""
        return (self.peak - sum(idle["bytes"] for idle in self.idle())) / len(self.ranks)


def give_up(message):
    sys.exit(f"{pathlib.Path(sys.argv[0]).stem}: {message}")


def environment(**more):
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "ZT_LOG": "warn", **more}


def cores():
    """Returns one processor number for each core that this process may use."""
    first = {}
    for processor in sorted(os.sched_getaffinity(0)):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list").read_text()
        first.setdefault(siblings, processor)
    return list(first.values())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(commands, options):
    """Runs the processes [(command, environment)] at the same time. Returns rank 0's result, with `start_seconds`, the time to
    the end of the first step, and `memory`, bytes per rank. If a process fails or exceeds the timeout, ends the benchmark with
    the last lines of the log."""
    folder = options.folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    signal.signal(signal.SIGTERM, terminated)
    memory, started = Memory(folder, options.ranks), time.monotonic()
    with open(folder / "log", "w") as log:
        processes = [subprocess.Popen(command, stdout=log, stderr=log, env=env) for command, env in commands]
        try:
            watch(processes, memory, started + options.timeout)
        except RuntimeError as failure:
            give_up(f"{failure}. The end of its output:\n{''.join((folder / 'log').read_text().splitlines(True)[-30:])}")
        finally:
            end(processes)
    result = json.loads((folder / "result.json").read_text())
    return {**result, "start_seconds": result["first_step_at"] - started, "memory": memory.bytes_per_rank()}


def terminated(*_):
    """Handles SIGTERM: exits by an exception, so that run() ends the ranks."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    give_up("terminated")


def end(processes):
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def watch(processes, memory, deadline):
    """Waits until all processes have ended with status 0. Raises RuntimeError if one fails or the deadline passes."""
    while True:
        ended = [process.poll() for process in processes]
        for process, status in zip(processes, ended):
            if status:
                raise RuntimeError(f"{shlex.join(process.args)} exited with {status}")
        if None not in ended:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{shlex.join(processes[0].args)} did not end in time (--timeout)")
        memory.look()
        time.sleep(LOOK_SECONDS)


def run_python(command, options, **variables):
    """Runs `command` once per rank, each on its own core, with the environment variables that torch.distributed requires."""
    port = str(free_port())
    return run([
        (["taskset", "--cpu-list", str(core), *map(str, command), *model_arguments(options)],
         environment(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(options.ranks), LOCAL_WORLD_SIZE=str(options.ranks),
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **variables))
        for rank, core in zip(range(options.ranks), itertools.cycle(cores()))
    ], options)


def run_ztoolkit(options, *more):
    places = ["--oversubscribe", "--bind-to", "none"] if options.ranks > len(cores()) else ["--bind-to", "core"]
    command = ["mpirun", *places, "-n", options.ranks, options.ztoolkit, "run", ROOT / "bench/peers/train_vs.lua",
               *model_arguments(options), *more]
    return run([([str(word) for word in command], environment())], options)


def export_parameters(options, *more):
    """Lets ztoolkit write its initial parameters into the folder. `more`: further arguments of train_vs.lua."""
    if not options.ztoolkit.exists():
        give_up(f"there is no {options.ztoolkit}: build it (cmake --build build/release), or give its path with --ztoolkit")
    command = [options.ztoolkit, "run", ROOT / "bench/peers/train_vs.lua", "--export", *model_arguments(options), *more]
    subprocess.run(list(map(str, command)), env=environment(), check=True)


def model_arguments(options):
    """Returns the command-line arguments that every rank takes."""
    names = ("layers", "hidden", "heads", "vocab", "seq", "batch", "steps", "warmup", "lr", "folder")
    return [word for name in names for word in (f"--{name}", str(getattr(options, name)))] + ["--tied"] * options.tied


def add_common_arguments(parser):
    parser.add_argument("--data", type=pathlib.Path, default=ROOT / "corpus/gcide.npy", help="the tokens to train on")
    parser.add_argument("--ztoolkit", type=pathlib.Path, default=ROOT / "build/release/bin/ztoolkit", help="our program")
    parser.add_argument("--timeout", type=float, default=600, help="seconds that one run may take")
    parser.set_defaults(oversubscribe=False)


def check_warmup(parser, options):
    if not 0 < options.warmup < options.steps:
        parser.error("--warmup must be at least 1 and less than --steps")


def check_ranks(options):
    if options.batch % options.ranks:
        give_up(f"a step's {options.batch} samples do not divide into {options.ranks} ranks")
    if options.ranks > len(cores()) and not options.oversubscribe:
        give_up(f"--ranks {options.ranks} need one core each, but this process may use {len(cores())}")


def largest_difference(a, b):
    return max(abs(x - y) / abs(y) for x, y in zip(a, b))


def spread(values):
    return (max(values) - min(values)) / statistics.median(values)
