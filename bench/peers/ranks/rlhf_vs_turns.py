"""How a side of rlhf_vs.py is asked for iterations: the file go.N of its folder has their number, 0 at the end, and done.N gets
their seconds and the last loss. Between them the side sleeps, and leaves the processor to the other one."""

import json
import os
import pathlib
import time

WAIT_SECONDS = 0.003  # between two looks for a file


def write(path, text):
    """Writes a file that appears with its contents."""
    partial = path.with_suffix(path.suffix + ".partial")
    partial.write_text(text)
    os.rename(partial, path)


class Turns:
    def __init__(self, folder):
        self.folder, self.turn = pathlib.Path(folder), 0

    def wait(self):
        """Returns the number of the next iterations."""
        path = self.folder / f"go.{self.turn}"
        while not path.exists():
            time.sleep(WAIT_SECONDS)
        return int(path.read_text())

    def done(self, seconds, loss):
        write(self.folder / f"done.{self.turn}", json.dumps({"seconds": seconds, "loss": loss}))
