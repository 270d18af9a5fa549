"""Functions that the checks in this folder share: list source files, and report the result."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("modules", "comm", "zero", "pipe", "moe", "ckpt", "lua", "scripts", "tests", "bench", "cmake")
CPP = (".cpp", ".h", ".cu", ".cuh")


def sources(*suffixes, folders=FOLDERS):
    """Returns the files with one of these suffixes, sorted, as paths relative to the root."""
    found = []
    for folder in folders:
        found += [path.relative_to(ROOT) for path in (ROOT / folder).rglob("*") if path.suffix in suffixes and path.is_file()]
    return sorted(found)


def finish(problems, passed):
    """Ends a check: prints the problems and exits with status 1, or prints the message `passed`."""
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    print(passed)
