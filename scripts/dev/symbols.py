#!/usr/bin/env python3
"""Checks that each module in a build folder exports exactly one symbol, luaopen_zt_NAME, and that no object of CUDA code calls exit:
nvcc compiles so what calls a __device__ function on the host.

    scripts/dev/symbols.py build/release
"""

import pathlib
import subprocess
import sys

import tree


def exported(library):
    """Returns the sorted names of the dynamic symbols that a library defines."""
    listing = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", str(library)], capture_output=True, text=True, check=True)
    return sorted(line.split()[0] for line in listing.stdout.splitlines())


def undefined(item):
    """Returns the names of the symbols that an object file needs from others."""
    listing = subprocess.run(["nm", "--undefined-only", "--format=posix", str(item)], capture_output=True, text=True, check=True)
    return {line.split()[0] for line in listing.stdout.splitlines()}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    modules = sorted(pathlib.Path(sys.argv[1], "lib/zt").glob("*.so"))
    problems = [] if modules else [f"there are no modules in {sys.argv[1]}/lib/zt: build first"]
    for module in modules:
        symbols, wanted = exported(module), [f"luaopen_zt_{module.stem}"]
        if symbols != wanted:
            shown = ", ".join(symbols[:5]) + (f" and {len(symbols) - 5} more" if len(symbols) > 5 else "")
            problems.append(f"{module.name} exports {shown or 'nothing'} instead of {wanted[0]}: is it made by ztoolkit_add_module?")
        else:
            print(f"{module.name}: {wanted[0]}")
    cuda = [item for item in sorted(pathlib.Path(sys.argv[1]).rglob("*.cu.o")) if "exit" in undefined(item)]
    problems += [f"{item} calls exit: a function of the host there calls one that is compiled for the device only" for item in cuda]
    tree.finish(problems, f"{len(modules)} modules export one symbol each")


main()
