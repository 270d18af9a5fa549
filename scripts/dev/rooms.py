"""Checks the rooms of the modules for layering.py, and prints them. A room is a subfolder of a module; room_table.py explains rooms
and lists them, from bottom to top."""

import collections

import tree
from room_table import ROOMS

# One of our files includes another one: the file, the line's number, the name in the include, and the file of that name.
Arrow = collections.namedtuple("Arrow", "file line include target")

# By module: the folders in it whose files and subfolders count as if they lay in the module's folder itself.
OPEN_FOLDERS = {
    "modules/sdk": ("src", "include/zt"),
    "modules/io": ("src", "include/zt/io"),
    "lua/binding": ("src", "include/zt/lua"),
}


def order_of(module):
    """Returns the rooms of a module's table, from bottom to top."""
    return [room for line in ROOMS.get(module, ()) for room in line]


def room_of(module, file):
    """Returns the name of the room of a file of `module`."""
    inner = str(file).removeprefix(module + "/")
    for folder in OPEN_FOLDERS.get(module, ()):
        inner = inner.removeprefix(folder + "/")
    return inner.split("/")[0] if "/" in inner else "."


class Graph:
    """The rooms of one module: the files of each, and the arrows from one room to another."""

    def __init__(self, module, files, arrows):
        self.module, self.files = module, files
        self.arrows = [arrow for arrow in arrows if self.room(arrow.file) != self.room(arrow.target)]
        self.counts = collections.Counter((self.room(arrow.file), self.room(arrow.target)) for arrow in self.arrows)
        self.order = order_of(module)

    def room(self, file):
        return room_of(self.module, file)

    def rank(self, room):
        """Returns the place of a room in the table; -1 if the table does not have it."""
        return self.order.index(room) if room in self.order else -1

    def runs_up(self, user, used):
        return min(self.rank(user), self.rank(used)) >= 0 and self.rank(used) > self.rank(user)

    def path(self, first, last):
        """Returns a shortest list of rooms from `first` to `last`, in which each room uses the next; None if there is none."""
        paths = collections.deque([[first]])
        seen = {first}
        while paths:
            path = paths.popleft()
            if path[-1] == last:
                return path
            for user, used in sorted(self.counts):
                if user == path[-1] and used not in seen:
                    seen.add(used)
                    paths.append(path + [used])
        return None

    def arrow_problem(self, arrow):
        """Returns the problem of an include of a file in another room, or None."""
        user, used = self.room(arrow.file), self.room(arrow.target)
        for room in (user, used):
            if self.rank(room) < 0:
                return f"'{room}' is no room of {self.module} in scripts/dev/room_table.py"
        if not self.runs_up(user, used):
            return None
        back = self.path(used, user)
        circle = f"; both are in the circle {' > '.join([user] + back)}" if back else ""
        return f"the room {used} lies above {user}{circle}"

    def problems(self):
        if self.module not in ROOMS:
            return [f"{self.module}: this module has no list of rooms in scripts/dev/room_table.py"]
        found = {self.room(file) for file in self.files}
        unknown, empty = sorted(found - set(self.order)), [room for room in self.order if room not in found]
        problems = [f"{self.module}: the room '{room}' is not in scripts/dev/room_table.py" for room in unknown]
        problems += [f"{self.module}: the room '{room}' of scripts/dev/room_table.py has no files" for room in empty]
        for arrow in self.arrows:
            problem = self.arrow_problem(arrow)
            if problem:
                problems.append(f"{arrow.file}:{arrow.line}: includes {arrow.include}: {problem}")
        return problems

    def picture(self):
        """Returns the rooms as lines of text, from top to bottom."""
        files, lines = collections.Counter(), collections.Counter()
        for file in self.files:
            files[self.room(file)] += 1
            lines[self.room(file)] += len((tree.ROOT / file).read_text().splitlines())
        rooms = sorted(set(files) - set(self.order)) + self.order[::-1]
        text = [f"{self.module}: {files.total()} files, {lines.total()} lines"]
        for room in rooms:
            uses = "; ".join(filter(None, (self.uses("uses", room, rooms, False), self.uses("RUNS UP to", room, rooms, True))))
            text.append(f"  {room:<14} {files[room]:>3} files {lines[room]:>5} lines   {uses}".rstrip())
        return text

    def uses(self, word, room, rooms, is_up):
        """Returns "uses core 3, base 8": the rooms below (or above) that `room` uses, each with the number of includes; or ""."""
        used = [f"{other} {self.counts[room, other]}" for other in rooms
                if self.counts[room, other] and self.runs_up(room, other) == is_up]
        return f"{word} {', '.join(used)}" if used else ""


def graphs(owner, files, arrows):
    """Returns the graph of each module, in the order of the table. owner: a function from a file to the folder of its module, or
    None. files: the C++ files. arrows: the includes between them."""
    files_of, arrows_of = collections.defaultdict(list), collections.defaultdict(list)
    for file in files:
        if owner(file):
            files_of[owner(file)].append(file)
    for arrow in arrows:
        if owner(arrow.file) == owner(arrow.target):
            arrows_of[owner(arrow.file)].append(arrow)
    order = [module for module in ROOMS if module in files_of] + sorted(set(files_of) - set(ROOMS))
    return [Graph(module, files_of[module], arrows_of[module]) for module in order]
