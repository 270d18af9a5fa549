"""Tests that the checks in scripts/dev can fail: runs each on a small tree that breaks its rule."""

import pathlib
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

    def run_check(self, name, *arguments):
        done = subprocess.run([sys.executable, "-B", str(self.root / "scripts/dev" / name), *arguments], capture_output=True, text=True,
                              check=False)
        return done.returncode, done.stdout + done.stderr

    def test_layering_accepts_what_points_down(self):
        self.write("comm/local.cpp", '#include <mpi.h>\n#include "local.h"\n#include "zt/base/error.h"\n')
        self.write("comm/local.h", "#pragma once\n")
        self.write("comm/lua/module.cpp", '#include "zt/lua/state.h"\nmodule.from_lua("gather", "zt.comm.gather");\n')
        self.assertEqual(self.run_check("layering.py"), (0, "arrows point down\n"))

    def test_layering_refuses(self):
        wrong = {
            "zero/shard.cpp": ("#include <mpi.h>\n", "MPI and NCCL occur in comm only"),
            "comm/read.cpp": ("\n#include <hdf5.h>\n", "HDF5 occurs in"),
            "modules/nn/layers/linear.cpp": ('#include "zt/lua/state.h"\n', "Lua headers occur in"),
            "modules/sdk/src/base/error.cpp": ("#include <lua.hpp>\n", "Lua headers occur in"),
            "modules/optim/adam.cpp": ('#include "../nn/linear.h"\n', "modules meet in Lua only"),
            "modules/optim/lion.cpp": ('#include "no_such_file.h"\n', "modules meet in Lua only"),
            "zero/lua/module.cpp": ('module.from_lua("gathered", "zt.gathered");\n', "the Lua library lies above"),
            "lua/binding/src/trainers.cpp": ('lua_pushliteral(L, "zt.plan");\n', "the Lua library lies above"),
            "modules/data/tokens.cpp": ("#include <torch/torch.h>\n", "torch/torch.h costs"),
        }
        self.write("modules/nn/linear.h", "#pragma once\n")
        for path, (text, _) in wrong.items():
            self.write(path, text)
        status, out = self.run_check("layering.py")
        self.assertEqual(status, 1)
        for path, (_, problem) in wrong.items():
            line = next((line for line in out.splitlines() if line.startswith(path + ":")), "")
            self.assertIn(problem, line, path)
        self.assertIn(f"{len(wrong)} problems", out)
        self.assertIn("comm/read.cpp:2:", out)

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
