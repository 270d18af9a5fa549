#!/usr/bin/env python3
"""Checks the sizes of folders, files and functions. Fails for a folder with more than 16 files (a header and its source count
once), a file with more than 500 lines, and a function with more than 60. Lists files with more than 300 lines. Prints the median,
the 90th percentile and the largest size. Requires universal-ctags.

    scripts/dev/sizes.py
"""

import collections
import json
import re
import statistics
import subprocess

import tree

FILE_LIMIT, FILE_WARNING, FUNCTION_LIMIT, FOLDER_LIMIT = 500, 300, 60, 16
SUFFIXES = tree.CPP + (".lua", ".py", ".sh", ".cmake")


def lua_end(lines, start):
    """Returns the last line (1-based) of the Lua function that begins at line `start`, which ctags does not report. Our Lua code is
    indented: the last line is the next one with no deeper indentation, if it begins with `end`. Otherwise the function has one
    line."""
    first = lines[start - 1]
    depth = len(first) - len(first.lstrip())
    for number in range(start + 1, len(lines) + 1):
        line = lines[number - 1]
        if line.strip() and len(line) - len(line.lstrip()) <= depth:
            return number if re.match(r" {%d}end\b" % depth, line) else start
    return start


def functions(files):
    """Returns (number of lines, name, file, first line) of every function in the files."""
    command = ["ctags", "--output-format=json", "--fields=+ne", "--kinds-C++=f", "--kinds-Lua=f", "--kinds-Python=fm", "-f", "-"]
    listing = subprocess.run(command + [str(file) for file in files], cwd=tree.ROOT, capture_output=True, text=True, check=True)
    found = []
    for text in listing.stdout.splitlines():
        tag = json.loads(text)
        end = tag.get("end")
        if tag["path"].endswith(".lua"):
            end = lua_end((tree.ROOT / tag["path"]).read_text().splitlines(), tag["line"])
        if end:
            found.append((end - tag["line"] + 1, tag["name"], tag["path"], tag["line"]))
    return found


def crowded_folders(files):
    """Returns a problem for each folder with too many files."""
    names = collections.defaultdict(set)
    for file in files:
        if file.name != "CMakeLists.txt":
            names[file.parent].add(file.stem)
    return [f"{folder}: {len(stems)} files, {FOLDER_LIMIT} at most: divide it into folders" for folder, stems in names.items()
            if len(stems) > FOLDER_LIMIT]


def summary(what, sizes):
    ordered = sorted(sizes)
    ninth = ordered[int(0.9 * (len(ordered) - 1))]
    return f"{what}: {len(ordered)}, median {statistics.median(ordered):.0f} lines, 90th percentile {ninth}, largest {ordered[-1]}"


def main():
    files = tree.sources(*SUFFIXES)
    lines = {file: len((tree.ROOT / file).read_text().splitlines()) for file in files}
    problems = [f"{file}: {count} lines, {FILE_LIMIT} at most: split it by subject" for file, count in lines.items() if count > FILE_LIMIT]
    problems += crowded_folders(files)
    for file, count in lines.items():
        if FILE_WARNING < count <= FILE_LIMIT:
            print(f"{file}: {count} lines (more than {FILE_WARNING})")
    measured = functions([file for file in files if file.suffix in (".cpp", ".h", ".cu", ".cuh", ".lua", ".py")])
    for count, name, file, line in sorted(measured, reverse=True):
        if count > FUNCTION_LIMIT:
            problems.append(f"{file}:{line}: {name} has {count} lines, {FUNCTION_LIMIT} at most")
    print(summary("files", lines.values()))
    print(summary("functions", [count for count, *_ in measured]))
    tree.finish(problems, "sizes are within the limits")


main()
