"""`cmake --install`: the tree can be moved, and a module can be built against it outside of the source tree. ZT_TORCH_DIR is set."""

import os
import pathlib
import re
import subprocess
import unittest

from host import BUILD, SOURCE, HostTest, environment

CMAKE = os.environ["ZT_CMAKE"]


def call(*arguments, env=None):
    done = subprocess.run([str(argument) for argument in arguments], env=environment(env or {}), text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} failed with status {done.returncode}:\n{done.stdout}")
    return done.stdout


class Install(HostTest):
    def setUp(self):
        super().setUp()
        self.prefix = self.folder / "prefix"
        call(CMAKE, "--install", BUILD, "--prefix", self.prefix)

    def installed(self, *arguments, env=None):
        return call(self.prefix / "bin/ztoolkit", *arguments, env=env)

    def test_the_tree(self):
        for name in ("bin/ztoolkit", "libexec/ztoolkit", "lib/libzt.so", "lib/libzt_io.so", "lib/libzt_lua.so",
                     "lib/libzt_sentencepiece.so", "lib/zt/example.so",
                     "include/zt/model/layer.h", "include/zt/io/atomic_file.h", "include/zt/build_id.h", "include/zt/lua/state.h",
                     "share/ztoolkit/lua/zt/init.lua", "share/ztoolkit/lua/zt/cmd/flight.lua",
                     "share/ztoolkit/lua/zt/ckpt/load.lua", "share/ztoolkit/lua/zt/zero/gathered.lua",
                     "share/ztoolkit/README.md", "share/ztoolkit/GLOSSARY.md", "share/ztoolkit/docs/lua.md",
                     "share/ztoolkit/lua/zt/README.md", "share/ztoolkit/moe/README.md",
                     "lib/cmake/ztoolkit/ztoolkitConfig.cmake"):
            self.assertTrue((self.prefix / name).is_file(), name)
        lua = self.prefix / "share/ztoolkit/lua"
        self.assertEqual([file for file in lua.rglob("*") if file.is_file() and file.suffix not in (".lua", ".md", ".js", ".css")], [])
        self.assertEqual([file for file in lua.rglob("*") if file.is_symlink()], [])
        moved = self.folder / "moved"
        self.prefix.rename(moved)
        self.prefix = moved
        script = self.script('local zt = require "zt"; print(zt.ones({2}):sum():item(), package.loaded["zt.core"] ~= nil)')
        self.assertEqual(self.installed("run", script), "2\ttrue\n")
        self.assertIn("ztoolkit ckpt ls", self.installed("ckpt", "ls", "--help"))
        run = self.script(f'require("zt").run{{name = "r", folder = "{self.folder}"}}:finish()', "run.lua")
        self.installed("run", run)
        self.installed("report", self.folder / "r")
        page = (self.folder / "r/report.html").read_text()
        for part in ("class Chart", "@media print"):  # from the page's script and its style
            self.assertIn(part, page)
        self.assertIn("Returns a pass that makes the ranks", self.installed("api", "zero.shard"))
        self.assertNotIn("cannot be loaded", self.installed("modules"))
        self.assertNotIn(str(SOURCE), self.installed("modules"))

    def test_the_links_of_the_documents(self):
        top, dead = self.prefix / "share/ztoolkit", []
        documents = sorted(top.rglob("*.md"))
        self.assertGreater(len(documents), 20)
        for document in documents:
            text = re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(), flags=re.S)
            links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) + re.findall(r"^\[[^\]]+\]: ([^#\s]+)", text, flags=re.M)
            dead += [f"{document.relative_to(top)}: {link}" for link in links
                     if not re.match("[a-z]+:", link) and not (document.parent / link).exists()]
        self.assertEqual(dead, [])

    def test_a_module_outside_the_tree(self):
        source = self.folder / "example"
        source.mkdir()
        for file in pathlib.Path(SOURCE, "modules/example").iterdir():
            (source / file.name).write_text(file.read_text())
        # Gives the module another name by the two sed commands of its README.
        for line in (source / "README.md").read_text().splitlines():
            if line.startswith("sed -i "):
                subprocess.run(["sh", "-c", line], cwd=source, check=True)
        build = self.folder / "build"
        call(CMAKE, "-S", source, "-B", build, f"-Dztoolkit_DIR={self.prefix}/lib/cmake/ztoolkit", "-DCMAKE_BUILD_TYPE=Release")
        call(CMAKE, "--build", build)
        path = {"LUA_CPATH": f"{build}/?.so;;"}
        self.assertIn(str(build), self.installed("modules", env=path))
        script = self.script('local mine = require "zt.mine"; print(type(mine.scale))')
        self.assertEqual(self.installed("run", script, env=path), "function\n")


if __name__ == "__main__":
    unittest.main()
