"""Reads definitions from source files by universal-ctags, for the checks in this folder."""

import json
import re
import subprocess

import tree

ANONYMOUS = "(anonymous)"
CLASS_KINDS = ("class", "struct", "union")


def qualified(tag):
    """Returns the name of a definition with its scopes: "zt::comm::Queue", or "zt::comm::(anonymous)::Pair"."""
    return f"{tag['scope']}::{tag['name']}" if tag.get("scope") else tag["name"]


def read(files, cpp="f", lua="f", python="f"):
    """Returns the definitions of the kinds that the letters say, as dicts of ctags. Each has at least the keys name, path, line and
    kind; scope and scopeKind unless the definition lies in no scope; and end, the last line, for C++ and Python. Scopes are complete
    for all letters."""
    command = ["ctags", "--output-format=json", "--fields=+aneKs", "--fields-C++=+{specialization}",
               "--langmap=C++:+.cu.cuh", f"--kinds-C++={cpp}", f"--kinds-Lua={lua}", f"--kinds-Python={python}",
               "-L", "-", "-f", "-"]
    listing = subprocess.run(command, cwd=tree.ROOT, input="\n".join(map(str, files)), capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in listing.stdout.splitlines()]
    for tag in found:
        # ctags gives a name of its own, such as __anon5d0e01430111, to each anonymous namespace, type and function.
        tag["name"] = re.sub(r"^__anon\w+$", ANONYMOUS, tag["name"])
        if "scope" in tag:
            tag["scope"] = re.sub(r"__anon\w+", ANONYMOUS, tag["scope"])
    return found
