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


def module_of(file):
    """Returns the folder of the module that a file belongs to: "comm", "modules/nn", "lua/binding"; for tests and benchmarks the
    folder of their subject, such as "tests/nn"; else the first folder."""
    parts = str(file).split("/")
    has_subfolder = parts[0] in ("modules", "tests", "bench") or parts[:2] == ["lua", "binding"]
    return "/".join(parts[:2]) if has_subfolder else parts[0]


def finish(problems, passed):
    """Ends a check: prints the problems and exits with status 1, or prints the message `passed`."""
    for problem in problems:
        print(problem)
    if problems:
        sys.exit(f"{len(problems)} problem{'s' if len(problems) > 1 else ''}")
    print(passed)
