"""Measures classes for sizes.py. A class of C++ has the lines of its body and those of all its member functions, nested classes and
their members that are defined outside of the body, in any file of its module. A class of Python has the lines of its body. A class
of Lua has the lines of the functions of one table in one file, if at least one of them is a method (`function Run:log()`)."""

import collections

import tags
import tree


class Body:
    """One class definition."""

    def __init__(self, tag):
        self.name, self.path, self.first, self.last = tags.qualified(tag), tag["path"], tag["line"], tag["end"]
        self.lines = self.last - self.first + 1

    def holds(self, tag):
        """True if a definition lies within this body; false for the body itself."""
        is_inside = tag["path"] == self.path and self.first <= tag["line"] and tag["end"] <= self.last
        return is_inside and tags.qualified(tag) != self.name


def place(path, name):
    """Returns where a class of that name can be defined: its module, or for a name that other files do not see, its file."""
    return path if tags.ANONYMOUS in name else tree.module_of(path)


def cpp_classes(files):
    """Returns (number of lines, name, file, first line) of each class in the C++ files."""
    found = [tag for tag in tags.read(files, cpp="csuf") if "end" in tag]
    bodies = [Body(tag) for tag in found if tag["kind"] in tags.CLASS_KINDS]
    by_name, by_file = collections.defaultdict(list), collections.defaultdict(list)
    for body in bodies:
        by_name[place(body.path, body.name), body.name].append(body)
        by_file[body.path].append(body)
    for tag in found:
        if tag.get("scopeKind") in tags.CLASS_KINDS and not any(body.holds(tag) for body in by_file[tag["path"]]):
            add_to_scopes(tag, by_name)
    return [(body.lines, body.name, body.path, body.first) for body in bodies if not body.name.endswith(tags.ANONYMOUS)]


def add_to_scopes(tag, by_name):
    """Adds the lines of a definition to each class that it belongs to: that of its scope, and those around that class."""
    parts = tag["scope"].split("::")
    for count in range(1, len(parts) + 1):
        name = "::".join(parts[:count])
        bodies = by_name.get((place(tag["path"], name), name))
        if bodies:
            # Several classes have one name if a template has specialisations, or if preprocessor branches define the class.
            body = next((body for body in bodies if body.path == tag["path"]), bodies[0])
            body.lines += tag["end"] - tag["line"] + 1


def python_classes(files):
    """Returns the same for Python."""
    found = tags.read(files, python="c")
    return [(tag["end"] - tag["line"] + 1, tags.qualified(tag), tag["path"], tag["line"]) for tag in found]


def lua_classes(functions):
    """Returns the same for Lua. functions: (number of lines, name, file, first line) of each function of the Lua files."""
    tables, classes = collections.defaultdict(list), set()
    for lines, name, path, first in functions:
        table = name.replace(":", ".").rpartition(".")[0]
        tables[path, table].append((lines, first))
        if ":" in name:
            classes.add((path, table))
    return [(sum(lines for lines, _ in tables[path, table]), table, path, min(first for _, first in tables[path, table]))
            for path, table in sorted(classes)]
