#!/usr/bin/env python3
"""Checks the sizes of folders, files, classes and functions. Fails for a folder with more than 16 files (a header and its source
count once), a file with more than 500 lines, a class with more than 250 (class_sizes.py says what counts), and a function with more
than 60. Lists files with more than 300 lines and classes with more than 150. Prints the median, the 90th percentile and the largest
size. Requires universal-ctags.

    scripts/dev/sizes.py
"""

import collections
import re
import statistics

import class_sizes
import tags
import tree

FILE_LIMIT, FILE_WARNING, FUNCTION_LIMIT, FOLDER_LIMIT = 500, 300, 60, 16
CLASS_LIMIT, CLASS_WARNING = 250, 150
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
    found = []
    for tag in tags.read(files, python="fm"):
        end = tag.get("end")
        if tag["path"].endswith(".lua"):
            end = lua_end((tree.ROOT / tag["path"]).read_text().splitlines(), tag["line"])
        if end:
            found.append((end - tag["line"] + 1, tag["name"], tag["path"], tag["line"]))
    return found


def classes(files, measured_functions):
    """Returns (number of lines, name, file, first line) of every class in the files, the largest first. A class of Lua or Python in
    tests is left out: it is a list of independent cases, which the limit of files bounds."""
    product = [file for file in files if file.parts[0] != "tests"]
    product_names = set(map(str, product))
    found = class_sizes.cpp_classes([file for file in files if file.suffix in tree.CPP])
    found += class_sizes.python_classes([file for file in product if file.suffix == ".py"])
    found += class_sizes.lua_classes([function for function in measured_functions
                                      if function[2].endswith(".lua") and function[2] in product_names])
    return sorted(found, reverse=True)


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
    if not ordered:
        return f"{what}: none"
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
    measured_classes = classes(files, measured)
    for count, name, file, line in measured_classes:
        if count > CLASS_LIMIT:
            problems.append(f"{file}:{line}: the class {name} has {count} lines, {CLASS_LIMIT} at most: divide it by task")
        elif count > CLASS_WARNING:
            print(f"{file}:{line}: the class {name} has {count} lines (more than {CLASS_WARNING})")
    print(summary("files", lines.values()))
    print(summary("classes", [count for count, *_ in measured_classes]))
    print(summary("functions", [count for count, *_ in measured]))
    tree.finish(problems, "sizes are within the limits")


main()
