#!/usr/bin/env python3
"""Checks includes, links and Lua requires of C++ code against the levels in the README: a level uses only lower levels, and
modules meet in Lua only. Within a module, checks the includes between rooms, which are its subfolders. room_table.py lists the
rooms of each module from bottom to top, and a file may include a file of its own room or of a room below. So the rooms of a module
form no circle. For an include that runs up, the check prints the file, the line, and the circle if there is one.

    scripts/dev/layering.py [build folder]     if a build folder is given, its libraries are checked too
    scripts/dev/layering.py --picture          checks nothing and prints each module's rooms from top to bottom: the number of files
                                               and lines of a room, and the rooms that it uses, each with the number of includes
"""

import argparse
import pathlib
import re
import subprocess

import rooms
import tree

# The folders of the levels below Lua. By folder: the other folders whose headers it may include. A module never uses another
# module.
SDK, IO, BINDING, HOST = "modules/sdk", "modules/io", "lua/binding", "modules/host"
USES = {SDK: (), IO: (SDK,), BINDING: (SDK, IO)}
MODULE_USES = (SDK, IO, BINDING)
PLAIN_MODULES = ("comm", "zero", "pipe", "moe", "ckpt")

# Headers with restricted use: the pattern of the include, the folders that may include it, the rule as text.
RESTRICTED = (
    (r"mpi\.h|nccl\.h", ("comm",), "MPI and NCCL occur in comm only"),
    (r"hdf5\.h|H5\w+\.h", ("ckpt", "modules/data"), "HDF5 occurs in ckpt and data only"),
    (r"torch/torch\.h", (), "torch/torch.h costs 18 s per file: include the headers that are used"),
)
LUA_HEADER = re.compile(r"lua\.hpp|lua\.h|lauxlib\.h|lualib\.h|luajit\.h|zt/lua/.*")

# Matches C++ code that requires a Lua module. A module may require only its own Lua half.
REQUIRES = re.compile(r'(?:lua_push(?:literal|string)\(\w+, |from_lua\("\w+", )"zt\.(\w+)')

# By external library: the file names of our libraries that may link to it.
LINKED = {
    "libmpi": {"zt/comm.so"},
    "libnccl": set(),
    "libhdf5": {"zt/ckpt.so", "zt/data.so"},
    "liburing": {"libzt_io.so"},
    "libsentencepiece": {"libzt_sentencepiece.so"},
    "libtorch_cuda": set(),
}


def owner(file):
    """Returns the folder of the module (or SDK, binding, host) that a source file belongs to; None for Lua and scripts."""
    text = str(file)
    if text.startswith("lua/"):
        return BINDING if text.startswith(BINDING) else None
    parts = file.parts
    return "/".join(parts[:2]) if parts[0] == "modules" else parts[0]


def include_problem(file, include):
    """Returns the problem of one include in one of our files, or None."""
    mine = owner(file)
    for pattern, allowed, rule in RESTRICTED:
        if re.fullmatch(pattern, include) and mine not in allowed:
            return rule
    if LUA_HEADER.fullmatch(include) and mine not in (BINDING, HOST) and file.parent.name != "lua" and file.name != "module.cpp":
        return "Lua headers occur in lua/binding, the host and a module's module.cpp or folder lua only"
    return None


def find_include(file, include):
    """Returns the file of a quoted include, or None if there is none that `file` may use."""
    mine = owner(file)
    roots = [file.parent, pathlib.Path(mine)]
    allowed = (mine, *USES.get(mine, MODULE_USES))
    roots += [pathlib.Path(mine) / "src"] + [pathlib.Path(used) / "include" for used in allowed]
    for root in roots:
        path = (tree.ROOT / root / include).resolve()
        if path.is_file() and owner(path.relative_to(tree.ROOT)) in allowed:
            return path.relative_to(tree.ROOT)
    return None


def check_include(file, number, sign, include, arrows):
    """Returns the problem of one include in one of our files, or None. Adds an include of another file of ours to `arrows`."""
    problem = include_problem(file, include)
    if problem or sign != '"' or include == "zt/build_id.h":
        return problem
    target = find_include(file, include)
    if target is None:
        return "this file may not use it, or it does not exist: arrows point down, and modules meet in Lua only"
    arrows.append(rooms.Arrow(file, number, include, target))
    return None


def check_file(file, arrows):
    """Returns the problems of one file. Adds its includes of other files of ours to `arrows`."""
    problems = []
    for number, line in enumerate((tree.ROOT / file).read_text().splitlines(), 1):
        for name in REQUIRES.findall(line):
            if name not in ("core", owner(file).split("/")[-1]):
                problems.append(f"{file}:{number}: requires zt.{name}: the Lua library lies above, and modules meet in Lua only")
        match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
        problem = match and check_include(file, number, match[1], match[2], arrows)
        if problem:
            problems.append(f"{file}:{number}: includes {match[2]}: {problem}")
    return problems


def needed(library):
    """Returns the names of the libraries that a library links to."""
    listing = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", listing)


def link_problem(name, library, modules):
    """Returns the problem if our library `name` ("zt/comm.so") links to `library` ("libmpi.so.40"), or None."""
    for stem, allowed in LINKED.items():
        if re.match(stem + r"[.\-_]", library) and name not in allowed:
            return f"{'only ' + ', '.join(sorted(allowed)) if allowed else 'no library'} may link to it: open it at run time"
    above = {"libzt.so": ("libluajit", "libzt_io", "libzt_lua"), "libzt_io.so": ("libluajit", "libzt_lua")}
    if library.startswith(above.get(name, ())):
        return "it lies above"
    if name == "libzt_sentencepiece.so" and library.startswith(("libzt", "libc10", "libtorch")):
        return "its symbols must not meet those of LibTorch (modules/data/sentencepiece/library.h)"
    if library in modules:
        return "modules meet in Lua only"
    return None


def check_libraries(build):
    lib = pathlib.Path(build) / "lib"
    modules = {path.name for path in (lib / "zt").glob("*.so")}
    problems = []
    for path in sorted([lib / "libzt.so", lib / "libzt_io.so", lib / "libzt_lua.so", lib / "libzt_sentencepiece.so", *(lib / "zt").glob("*.so")]):
        name = str(path.relative_to(lib))
        for library in needed(path):
            problem = link_problem(name, library, modules)
            if problem:
                problems.append(f"{name} links to {library}: {problem}")
    return problems


def main():
    parser = argparse.ArgumentParser(description="Checks which code uses which.")
    parser.add_argument("build", nargs="?", help="a build folder, whose libraries are checked too")
    parser.add_argument("--picture", action="store_true", help="print the rooms of each module, and check nothing")
    options = parser.parse_args()
    files = tree.sources(*tree.CPP, folders=("modules", "lua") + PLAIN_MODULES)
    arrows = []
    problems = [problem for file in files for problem in check_file(file, arrows)]
    graphs = rooms.graphs(owner, files, arrows)
    if options.picture:
        print("\n\n".join("\n".join(graph.picture()) for graph in graphs))
        return
    problems += [problem for graph in graphs for problem in graph.problems()]
    if options.build:
        problems += check_libraries(options.build)
    tree.finish(problems, "arrows point down")


main()
