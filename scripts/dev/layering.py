#!/usr/bin/env python3
"""Checks who includes and links whom, by the table in the README: arrows point down, and modules meet in Lua only.

    scripts/dev/layering.py [build folder]     the libraries of the build folder are checked too when it is given
"""

import pathlib
import re
import subprocess
import sys

import tree

# Folders of the levels below Lua. A module may use the SDK and the binding, and never another module.
SDK, BINDING, HOST = "modules/sdk", "lua/binding", "modules/host"
PLAIN_MODULES = ("comm", "zero", "pipe", "moe", "ckpt")

# Headers of libraries that only some may see: pattern of the include, who may, in words.
RESTRICTED = (
    (r"mpi\.h|nccl\.h", ("comm",), "MPI and NCCL occur in comm only"),
    (r"hdf5\.h|H5\w+\.h", ("ckpt", "modules/data"), "HDF5 occurs in ckpt and data only"),
    (r"torch/torch\.h", (), "torch/torch.h costs 18 s a file: include what is used"),
)
BINDS = re.compile(r"(module|lua_\w+|module_\w+)\.(cpp|h)$")  # files of a module that speak to Lua
LUA_HEADER = re.compile(r"lua\.hpp|lua\.h|lauxlib\.h|lualib\.h|luajit\.h|zt/lua/.*")

# Libraries that only some of ours may link to, by the file names of ours.
LINKED = {
    "libmpi": {"zt/comm.so"},
    "libnccl": set(),
    "libhdf5": {"zt/ckpt.so", "zt/data.so"},
    "libtorch_cuda": set(),
}


def owner(file):
    """The module (or SDK, binding, host) that a source file belongs to; None for Lua and scripts."""
    text = str(file)
    if text.startswith("lua/"):
        return BINDING if text.startswith(BINDING) else None
    parts = file.parts
    return "/".join(parts[:2]) if parts[0] == "modules" else parts[0]


def include_problem(file, include):
    """What is wrong with one include of one of our files; None: nothing."""
    mine = owner(file)
    for pattern, allowed, rule in RESTRICTED:
        if re.fullmatch(pattern, include) and mine not in allowed:
            return rule
    if LUA_HEADER.fullmatch(include) and mine not in (BINDING, HOST) and not BINDS.match(file.name):
        return "Lua headers occur in lua/binding, the host and a module's module*.cpp and lua_* files only"
    if mine == SDK and include.startswith("zt/lua/"):
        return "the SDK is below the binding"
    return None


def is_reachable(file, include):
    """True if a quoted include names a file of the SDK, of the binding or of the file's own module."""
    mine = owner(file)
    roots = [tree.ROOT / file.parent, tree.ROOT / mine, tree.ROOT / SDK / "include", tree.ROOT / SDK / "src"]
    if mine != SDK:
        roots += [tree.ROOT / BINDING / "include", tree.ROOT / BINDING / "src"] if mine == BINDING else [tree.ROOT / BINDING / "include"]
    for root in roots:
        path = (root / include).resolve()
        if path.is_file():
            return owner(path.relative_to(tree.ROOT)) in (mine, SDK, BINDING)
    return include == "zt/build_id.h"


def check_includes():
    problems = []
    for file in tree.sources(*tree.CPP, folders=("modules", "lua") + PLAIN_MODULES):
        for number, line in enumerate((tree.ROOT / file).read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not match:
                continue
            problem = include_problem(file, match[2])
            if not problem and match[1] == '"' and not is_reachable(file, match[2]):
                problem = "neither the SDK's, the binding's nor this module's: modules meet in Lua only"
            if problem:
                problems.append(f"{file}:{number}: includes {match[2]}: {problem}")
    return problems


def needed(library):
    listing = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", listing)


def link_problem(name, library, modules):
    """What is wrong with our library `name` ("zt/comm.so") linking to `library` ("libmpi.so.40")."""
    for stem, allowed in LINKED.items():
        if re.match(stem + r"[.\-_]", library) and name not in allowed:
            return f"only {', '.join(sorted(allowed)) or 'nobody'} may: open it at run time"
    if name == "libzt.so" and (library.startswith("libluajit") or library.startswith("libzt_lua")):
        return "the SDK is below Lua"
    if library in modules:
        return "modules meet in Lua only"
    return None


def check_libraries(build):
    lib = pathlib.Path(build) / "lib"
    modules = {path.name for path in (lib / "zt").glob("*.so")}
    problems = []
    for path in sorted([lib / "libzt.so", lib / "libzt_lua.so", *(lib / "zt").glob("*.so")]):
        name = str(path.relative_to(lib))
        for library in needed(path):
            problem = link_problem(name, library, modules)
            if problem:
                problems.append(f"{name} links to {library}: {problem}")
    return problems


def main():
    problems = check_includes()
    if len(sys.argv) > 1:
        problems += check_libraries(sys.argv[1])
    tree.finish(problems, "arrows point down")


main()
