"""What the checks in this folder share: the source files, and how a check ends."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("modules", "comm", "zero", "pipe", "moe", "ckpt", "lua", "scripts", "tests", "bench", "cmake")
CPP = (".cpp", ".h", ".cu", ".cuh")


def sources(*suffixes, folders=FOLDERS):
    """Files with one of these suffixes, relative to the root, by name."""
    found = []
    for folder in folders:
        found += [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and path.is_file()]
    return sorted(found)


def finish(problems, passed):
    """Prints the problems and ends with status 1, or prints what passed."""
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    print(passed)
