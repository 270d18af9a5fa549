#!/usr/bin/env python3
"""Checks that the name of a type means one thing. Fails for a class, struct, union, enum or `using` at namespace scope in the
product's C++ if its name is also defined in another namespace or file. Types in anonymous namespaces count, because a reader sees
them, too. Template specialisations and types within functions do not count. Requires universal-ctags.

    scripts/dev/names.py
    scripts/dev/names.py --nested     also lists, without failing, the types within classes whose name has a second definition. It
                                      leaves out aliases, types that are not public, and types within a class of an anonymous
                                      namespace
"""

import argparse
import collections
import re

import tags
import tree

FOLDERS = ("modules", "comm", "zero", "pipe", "moe", "ckpt", "lua")

# By name: the reason why it may have several definitions. A name that has only one must not be in this list.
ALLOWED = {}


def is_definition(tag):
    """True for a named type, other than a specialisation of a template."""
    return tag["kind"] in tags.CLASS_KINDS + ("enum", "typedef") and tag["name"] != tags.ANONYMOUS and not tag.get("specialization")


def is_global(tag):
    """True for a type that lies in namespaces only."""
    return tag.get("scopeKind", "namespace") == "namespace"


def is_shown_by_class(tag):
    """True for a type within a class that code outside of this class may name."""
    return (tag.get("scopeKind") in tags.CLASS_KINDS and tag["kind"] != "typedef" and tag.get("access") == "public"
            and tags.ANONYMOUS not in tag["scope"])


def definitions(found):
    """Returns, by name, the definitions. Those that preprocessor branches of one file repeat count once."""
    by_name = collections.defaultdict(dict)
    for tag in found:
        by_name[tag["name"]].setdefault((tags.qualified(tag), tag["path"]), tag)
    return {name: list(places.values()) for name, places in by_name.items()}


def listing(name, places):
    """Returns the lines of text that show the definitions of a name."""
    kinds = {"typedef": "using"}
    lines = [f"{name}: {len(places)} definitions"]
    lines += [f"  {tag['path']}:{tag['line']}: {kinds.get(tag['kind'], tag['kind'])} {tags.qualified(tag)}"
              for tag in sorted(places, key=lambda tag: (tag["path"], tag["line"]))]
    return "\n".join(lines)


def problems_of(by_name):
    problems = [listing(name, places) for name, places in sorted(by_name.items()) if len(places) > 1 and name not in ALLOWED]
    problems += [f"{name}: scripts/dev/names.py allows several definitions, but there is only one: take it out of the list"
                 for name in sorted(ALLOWED) if len(by_name.get(name, ())) < 2]
    return problems


def unknown_in_glossary(by_name):
    """Returns the problems of the types that the glossary lists."""
    glossary = tree.ROOT / "GLOSSARY.md"
    table = glossary.read_text().partition("## Types")[2] if glossary.exists() else ""
    listed = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    return [f"GLOSSARY.md: there is no type {name}" for name in listed if name not in by_name]


def print_nested(found):
    by_name = definitions([tag for tag in found if is_global(tag) or is_shown_by_class(tag)])
    for name, places in sorted(by_name.items()):
        if len(places) > 1 and not all(is_global(tag) for tag in places):
            print("within classes: " + listing(name, places))


def main():
    parser = argparse.ArgumentParser(description="Checks that a name of a type means one thing.")
    parser.add_argument("--nested", action="store_true", help="also list types within classes")
    options = parser.parse_args()
    files = tree.sources(*tree.CPP, folders=FOLDERS)
    found = [tag for tag in tags.read(files, cpp="csugtn") if is_definition(tag)]
    if options.nested:
        print_nested(found)
    by_name = definitions(filter(is_global, found))
    tree.finish(problems_of(by_name) + unknown_in_glossary(by_name), "each name of a type means one thing")


main()
