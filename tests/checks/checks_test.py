"""Tests that the checks in scripts/dev can fail: runs each on a small tree that breaks its rule."""

import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import unittest

DEV = pathlib.Path(__file__).resolve().parents[2] / "scripts/dev"


class Checks(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="zt-checks-"))
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(DEV, self.root / "scripts/dev")
        self.write("modules/sdk/include/zt/base/error.h", "#pragma once\n")
        self.write("lua/binding/include/zt/lua/state.h", "#pragma once\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def write_rooms(self, **rooms_of):
        """Writes the table of rooms. Unless given, the SDK and the binding have the rooms of setUp's files. In the name of a module,
        "_" stands for "/"."""
        table = {"modules/sdk": (("base",),), "lua/binding": ((".",),)}
        table.update((module.replace("_", "/"), rooms) for module, rooms in rooms_of.items())
        self.write("scripts/dev/room_table.py", f"ROOMS = {table!r}\n")

    def run_check(self, name, *arguments):
        done = subprocess.run([sys.executable, "-B", str(self.root / "scripts/dev" / name), *arguments], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_layering_accepts_what_points_down(self):
        self.write("comm/local.cpp", '#include <mpi.h>\n#include "local.h"\n#include "zt/base/error.h"\n')
        self.write("comm/local.h", "#pragma once\n")
        self.write_rooms(comm=((".", "lua"),))
        self.write("comm/lua/module.cpp", '#include "zt/lua/state.h"\nmodule.from_lua("gather", "zt.comm.gather");\n')
        self.assertEqual(self.run_check("layering.py"), (0, "arrows point down\n"))

    def test_layering_refuses(self):
        wrong = {
            "zero/shard.cpp": ("#include <mpi.h>\n", "MPI and NCCL occur in comm only"),
            "comm/read.cpp": ("\n#include <hdf5.h>\n", "HDF5 occurs in"),
            "modules/nn/layers/linear.cpp": ('#include "zt/lua/state.h"\n', "Lua headers occur in"),
            "modules/sdk/src/base/error.cpp": ("#include <lua.hpp>\n", "Lua headers occur in"),
            "modules/optim/flat/adam.cpp": ('#include "../nn/linear.h"\n', "modules meet in Lua only"),
            "modules/optim/flat/lion.cpp": ('#include "no_such_file.h"\n', "modules meet in Lua only"),
            "zero/lua/module.cpp": ('module.from_lua("gathered", "zt.gathered");\n', "the Lua library lies above"),
            "lua/binding/src/trainers.cpp": ('lua_pushliteral(L, "zt.plan");\n', "the Lua library lies above"),
            "modules/data/tokens.cpp": ("#include <torch/torch.h>\n", "torch/torch.h costs"),
        }
        self.write("modules/nn/linear.h", "#pragma once\n")
        flat = ((".",),)
        self.write_rooms(zero=((".", "lua"),), comm=flat, modules_nn=((".", "layers"),), modules_optim=flat, modules_data=flat)
        for path, (text, _) in wrong.items():
            self.write(path, text)
        status, out = self.run_check("layering.py")
        self.assertEqual(status, 1)
        for path, (_, problem) in wrong.items():
            line = next((line for line in out.splitlines() if line.startswith(path + ":")), "")
            self.assertIn(problem, line, path)
        self.assertIn(f"{len(wrong)} problems", out)
        self.assertIn("comm/read.cpp:2:", out)

    def write_module(self, sums):
        """Writes the module zero, whose room `plan` uses the room `math`. The text of math/sums.h is `sums`."""
        self.write("zero/math/sums.h", sums)
        self.write("zero/math/sums.cpp", '#include "math/sums.h"\n#include "zt/base/error.h"\n')
        self.write("zero/plan/buckets.h", '#include "math/sums.h"\n')
        self.write("zero/shard.cpp", '#include "plan/buckets.h"\n#include "math/sums.h"\n')

    def test_rooms_accept_what_points_down(self):
        self.write_module("#pragma once\n")
        self.write_rooms(zero=(("math", "plan"), (".",)))
        self.assertEqual(self.run_check("layering.py"), (0, "arrows point down\n"))
        status, out = self.run_check("layering.py", "--picture")
        self.assertEqual(status, 0)
        self.assertIn("zero: 4 files, 6 lines", out)
        self.assertRegex(out, r"\n  \. +1 files +2 lines   uses plan 1, math 1\n"
                              r"  plan +1 files +1 lines   uses math 1\n  math +2 files +3 lines\n")

    def test_rooms_refuse_a_circle(self):
        self.write_module('#pragma once\n#include "plan/buckets.h"\n')
        self.write_rooms(zero=(("math", "plan"), (".",)))
        status, out = self.run_check("layering.py")
        self.assertEqual(status, 1)
        self.assertIn("zero/math/sums.h:2: includes plan/buckets.h: the room plan lies above math; "
                      "both are in the circle math > plan > math", out)
        self.assertIn("1 problem", out)
        self.assertIn("RUNS UP to plan 1", self.run_check("layering.py", "--picture")[1])

    def test_rooms_refuse_another_table(self):
        self.write_module("#pragma once\n")
        self.write_rooms(zero=(("math", "old"), (".",)))
        self.write("moe/router.cpp", "")
        status, out = self.run_check("layering.py")
        self.assertEqual(status, 1)
        self.assertIn("zero: the room 'plan' is not in scripts/dev/room_table.py\n", out)
        self.assertIn("zero: the room 'old' of scripts/dev/room_table.py has no files\n", out)
        self.assertIn("zero/plan/buckets.h:1: includes math/sums.h: 'plan' is no room of zero", out)
        self.assertIn("moe: this module has no list of rooms", out)

    def test_rooms_of_public_headers(self):
        self.write("modules/sdk/include/zt/plan/plan.h", "#pragma once\n")
        self.write("modules/sdk/src/plan/plan.cpp", '#include "zt/plan/plan.h"\n#include "zt/base/error.h"\n')
        self.write("modules/sdk/src/base/error.cpp", '\n#include "zt/plan/plan.h"\n')
        self.write_rooms(modules_sdk=(("base",), ("plan",)))
        status, out = self.run_check("layering.py")
        self.assertEqual(status, 1)
        self.assertIn("modules/sdk/src/base/error.cpp:2: includes zt/plan/plan.h: the room plan lies above base", out)
        self.assertIn("1 problem", out)

    def test_table_lists_each_room_once(self):
        for module, lines in runpy.run_path(str(DEV / "room_table.py"))["ROOMS"].items():
            names = [room for line in lines for room in line]
            self.assertEqual(len(names), len(set(names)), module)

    def test_sizes(self):
        body = "  ++x;\n"
        self.write("comm/good.cpp", "int f(int x) {\n" + body * 57 + "  return x;\n}\n")
        self.assertEqual(self.run_check("sizes.py")[0], 0)
        self.write("comm/long.cpp", "int f(int x) {\n" + body * 59 + "  return x;\n}\n")
        self.write("lua/zt/long.lua", "local function g(x)\n" + "  x = x + 1\n" * 59 + "  return x\nend\nreturn g\n")
        self.write("comm/huge.h", "// text\n" * 501)
        self.write("comm/big.h", "// text\n" * 301)
        status, out = self.run_check("sizes.py")
        self.assertEqual(status, 1)
        self.assertIn("comm/long.cpp:1: f has 62 lines", out)
        self.assertIn("lua/zt/long.lua:1: g has 62 lines", out)
        self.assertIn("comm/huge.h: 501 lines, 500 at most", out)
        self.assertIn("comm/big.h: 301 lines (more than 300)", out)
        self.assertIn("3 problems", out)

    def write_class(self, name, methods, namespace="zt", file="comm/queue"):
        """Writes a class whose body has 2 + `methods` lines, and a .cpp with `methods` member functions of 10 lines each."""
        declared = "".join(f"  void f{i}();\n" for i in range(methods))
        defined = "".join(f"template <class T>\nvoid {name}<T>::f{i}() {{\n" + "  ++x;\n" * 8 + "}\n" for i in range(methods))
        self.write(f"{file}.h", f"namespace {namespace} {{\ntemplate <class T>\nclass {name} {{\n{declared}}};\n}}\n")
        self.write(f"{file}.cpp", f"namespace {namespace} {{\n{defined}}}\n")

    def test_sizes_of_classes(self):
        self.write_class("Queue", 20)
        self.assertEqual(self.run_check("sizes.py")[0], 0)
        self.write_class("Queue", 25)
        self.write("comm/queue_end.cu", "namespace zt {\nvoid Queue<int>::end() {\n" + "  ++x;\n" * 30 + "}\n}\n")
        status, out = self.run_check("sizes.py")
        self.assertEqual(status, 1)
        self.assertIn("comm/queue.h:3: the class zt::Queue has 309 lines, 250 at most", out)
        self.assertRegex(out, r"\nclasses: \d+, median \d+ lines, 90th percentile \d+, largest 309\n")
        self.assertIn("1 problem", out)

    def test_sizes_of_classes_of_one_name(self):
        self.write_class("Queue", 20)
        self.write_class("Queue", 12, "zt::io", "comm/io_queue")
        self.write_class("Queue", 14, file="zero/queue")
        for file, lines in (("comm/one.cpp", 160), ("comm/two.cpp", 170)):
            self.write(file, "namespace {\nclass Queue {\n  void f();\n};\nvoid Queue::f() {\n" + "  ++x;\n" * lines + "}\n}\n")
        out = self.run_check("sizes.py")[1]
        sizes = re.findall(r"(\S+): the class (\S+) has (\d+) lines", out)
        self.assertEqual(sizes, [("comm/queue.h:3", "zt::Queue", "222"), ("comm/two.cpp:2", "(anonymous)::Queue", "175"),
                                 ("comm/one.cpp:2", "(anonymous)::Queue", "165"), ("zero/queue.h:3", "zt::Queue", "156")])

    def test_sizes_of_nested_classes(self):
        body = "  ++x;\n"
        self.write("comm/outer.h", "class Outer {\n  struct Inner;\n  struct Small {\n    void f() {}\n  };\n};\n")
        self.write("comm/inner.h", "struct Outer::Inner {\n  int a;\n  void f() {\n" + body * 80 + "  }\n  void g();\n};\n")
        self.write("comm/inner.cpp", "void Outer::Inner::g() {\n" + body * 80 + "  struct Local {\n    int a;\n  };\n}\n")
        out = self.run_check("sizes.py")[1]
        self.assertIn("comm/inner.h:1: the class Outer::Inner has 171 lines (more than 150)", out)
        self.assertIn("comm/outer.h:1: the class Outer has 177 lines (more than 150)", out)

    def test_sizes_of_classes_of_lua_and_python(self):
        methods = "".join(f"function Run:f{i}()\n" + "  g()\n" * 50 + "end\n" for i in range(5))
        self.write("lua/zt/run.lua", "local Run = {}\n" + methods)
        self.write("scripts/run.py", "class Run:\n" + "".join(f"    def f{i}(self):\n" + "        g()\n" * 50 for i in range(5)))
        self.write("tests/lua/run_test.lua", methods)
        status, out = self.run_check("sizes.py")
        self.assertEqual(status, 1)
        self.assertIn("lua/zt/run.lua:2: the class Run has 260 lines, 250 at most", out)
        self.assertIn("scripts/run.py:1: the class Run has 256 lines, 250 at most", out)
        self.assertIn("2 problems", out)

    def allow_names(self, allowed):
        text = (self.root / "scripts/dev/names.py").read_text()
        before, rest = text.split("\nALLOWED = {", 1)
        self.write("scripts/dev/names.py", f"{before}\nALLOWED = {allowed!r}\n{rest.split('}', 1)[1]}")

    def test_names_accept_one_meaning(self):
        self.allow_names({})
        self.write("comm/queue.h", "namespace zt {\nclass Queue;\nclass Ring {\n public:\n  struct Queue {};\n};\n}\n")
        self.write("zero/queue.h", "namespace zt {\nclass Ring;\nclass Queue {};\ntemplate <class T>\nstruct Tag {};\n}\n")
        self.write("zero/tag.cpp", "namespace zt {\ntemplate <>\nstruct Tag<int> {};\nvoid f() {\n  struct Ring {};\n}\n}\n")
        self.write("tests/zero/queue.h", "class Queue {};\n")
        self.write("zero/both.h", "#ifdef A\nusing Word = int;\n#else\nusing Word = long;\n#endif\n")
        self.assertEqual(self.run_check("names.py"), (0, "each name of a type means one thing\n"))
        status, out = self.run_check("names.py", "--nested")
        self.assertEqual(status, 0)
        self.assertIn("within classes: Queue: 2 definitions\n  comm/queue.h:5: struct zt::Ring::Queue\n"
                      "  zero/queue.h:3: class zt::Queue\n", out)

    def test_names_refuse_two_meanings(self):
        self.write("comm/queue.h", "namespace zt::comm {\nclass Queue {};\nenum class Kind { a };\n}\n")
        self.write("zero/queue.cpp", "namespace zt {\nnamespace {\nusing Queue = int;\nstruct Kind {};\n}\n}\n")
        self.allow_names({"Kind": "a reason"})
        status, out = self.run_check("names.py")
        self.assertEqual(status, 1)
        self.assertEqual(out, "Queue: 2 definitions\n  comm/queue.h:2: class zt::comm::Queue\n"
                              "  zero/queue.cpp:3: using zt::(anonymous)::Queue\n1 problem\n")
        self.allow_names({"Kind": "a reason", "Queue": "a reason", "Old": "a reason"})
        status, out = self.run_check("names.py")
        self.assertEqual(status, 1)
        self.assertIn("Old: scripts/dev/names.py allows several definitions", out)
        self.assertIn("1 problem", out)

    def test_names_refuse_unknown_types_in_the_glossary(self):
        self.allow_names({})
        self.write("comm/queue.h", "namespace zt::comm {\nclass Queue {};\n}\n")
        self.write("GLOSSARY.md", "| `no_type` | a term |\n\n## Types\n\n| type |\n|---|\n| `Queue`, `Ring` | what |\n")
        self.assertEqual(self.run_check("names.py"), (1, "GLOSSARY.md: there is no type Ring\n1 problem\n"))

    def test_symbols(self):
        (self.root / "lib/zt").mkdir(parents=True)
        self.assertEqual(self.run_check("symbols.py", str(self.root))[0], 1)
        for name, source, status in (("good", "int luaopen_zt_good(void) { return 0; }", 0), ("bad", "int helper(void) { return 0; }", 1)):
            self.write("source.c", source)
            subprocess.run(["cc", "-shared", "-fPIC", "-nostartfiles", "-o", self.root / f"lib/zt/{name}.so", self.root / "source.c"], check=True)
            self.assertEqual(self.run_check("symbols.py", str(self.root))[0], status)
        self.write("source.c", "void exit(int); void host(void) { exit(1); }")
        subprocess.run(["cc", "-c", "-o", self.root / "rows.cu.o", self.root / "source.c"], check=True)
        out = self.run_check("symbols.py", str(self.root))[1]
        self.assertIn("bad.so exports helper instead of luaopen_zt_bad", out)
        self.assertIn("rows.cu.o calls exit", out)


if __name__ == "__main__":
    unittest.main()
