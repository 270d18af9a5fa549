"""Runs the ztoolkit executable of the build folder $ZT_BUILD, for the tests in this folder."""

import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = pathlib.Path(os.environ["ZT_BUILD"])
ZTOOLKIT = str(BUILD / "bin/ztoolkit")
MPIRUN = os.environ.get("ZT_MPIRUN", "")
SANITIZED = bool(os.environ.get("ZT_TEST_SANITIZER"))
SOURCE = pathlib.Path(__file__).resolve().parents[2]
# A run that has to end at once ends within these seconds, also on a machine that is busy with other work. What it must not wait for
# (a sleep, a timeout of communication) takes longer, or is excluded by the text of the message.
AT_ONCE = 20


@dataclasses.dataclass
class Result:
    status: int
    out: str
    err: str
    seconds: float
    ended: float = 0  # time.monotonic() at the end of the run; zt.now() reads the same clock

    def seconds_since_mark(self):
        """Returns the seconds from the time that a script printed after "mark" (zt.now()) to the end of the run."""
        return self.ended - float(re.search(r"mark\s+([0-9.]+)", self.out)[1])


def command(arguments, ranks=0, program=ZTOOLKIT):
    """Returns the command line of ztoolkit with these arguments, under mpirun if ranks > 0."""
    launcher = [MPIRUN, "--oversubscribe", "-n", str(ranks)] if ranks else []
    return launcher + [str(program), *map(str, arguments)]


def environment(changes):
    """Returns this process's environment with `changes` (None: not set), and without variables of mpirun that make a rank."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_COMM_", "PMIX_"))}
    for name, value in changes.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = str(value)
    return variables


def ztoolkit(*arguments, ranks=0, env=None, cwd=None, timeout=60, program=ZTOOLKIT):
    begin = time.monotonic()
    done = subprocess.run(command(arguments, ranks, program), env=environment(env or {}), cwd=cwd, timeout=timeout * (10 if SANITIZED else 1), text=True,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    end = time.monotonic()
    return Result(done.returncode, done.stdout, done.stderr, end - begin, end)


class Running:
    """A run in a process group of its own, as a terminal starts it. For tests of signals."""

    def __init__(self, *arguments, ranks=0, program=ZTOOLKIT):
        self.process = subprocess.Popen(command(arguments, ranks, program), env=environment({}), text=True, start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def wait_for(self, text):
        """Reads lines of stdout until one holds `text`; returns it."""
        for line in self.process.stdout:
            if text in line:
                return line
        raise AssertionError(f"the run ended without printing '{text}': {self.process.stderr.read()}")

    def signal(self, number):
        self.process.send_signal(number)

    def signal_group(self, number):
        os.killpg(self.process.pid, number)

    def finish(self, timeout=20):
        begin = time.monotonic()
        try:
            out, err = self.process.communicate(timeout=timeout)
        finally:
            # A test that fails must not leave a run behind.
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        end = time.monotonic()
        return Result(self.process.returncode, out, err, end - begin, end)


class HostTest(unittest.TestCase):
    """A test with a folder for its scripts."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="zt-host-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def script(self, text, name="script.lua"):
        path = self.folder / name
        path.write_text(text)
        return path

    def run_script(self, text, *arguments, options=(), **how):
        return ztoolkit("run", *options, self.script(text), *arguments, **how)
