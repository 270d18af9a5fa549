"""`cpack`: the archive works wherever it is unpacked and finds LibTorch by ZT_TORCH_DIR or beside it; the .deb holds the same tree."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

from host import BUILD, HostTest, Running, ztoolkit

TORCH = pathlib.Path(os.environ["ZT_TORCH_DIR"])  # the one of this build
DEB_TOOLS = all(shutil.which(tool) for tool in ("dpkg-shlibdeps", "dpkg-deb"))
LIBRARIES = "for line in io.lines '/proc/self/maps' do print(line:match '/.*%.so.*' or '') end"


def call(*arguments):
    done = subprocess.run([str(argument) for argument in arguments], text=True, timeout=500, check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise AssertionError(f"{arguments[0]} failed with status {done.returncode}:\n{done.stdout}")
    return done.stdout


class Package(HostTest):
    @classmethod
    def setUpClass(cls):
        cls.packages = pathlib.Path(tempfile.mkdtemp(prefix="zt-package-"))
        cls.addClassCleanup(shutil.rmtree, cls.packages)
        generators = "TGZ;DEB" if DEB_TOOLS else "TGZ"
        call(os.environ["ZT_CPACK"], "--config", BUILD / "CPackConfig.cmake", "-G", generators, "-B", cls.packages)
        (archive,) = cls.packages.glob("*.tar.gz")
        (cls.packages / "first place").mkdir()
        call("tar", "-xf", archive, "-C", cls.packages / "first place")
        (cls.packages / "first place").rename(cls.packages / "second place")
        (cls.tree,) = (cls.packages / "second place").iterdir()
        shutil.rmtree(cls.tree / "torch", ignore_errors=True)  # where the build bundles it
        cls.hello = cls.tree / "share/ztoolkit/scripts/exp/hello.lua"

    def packaged(self, *arguments, torch=None, **how):
        """Runs the package's ztoolkit with this ZT_TORCH_DIR (None: not set), in a folder that has nothing to do with it."""
        return ztoolkit(*arguments, env={"ZT_TORCH_DIR": torch, "LD_LIBRARY_PATH": None}, cwd=self.folder,
                        **{"program": self.tree / "bin/ztoolkit", **how})

    def link_beside(self):
        (self.tree / "torch").symlink_to(TORCH)
        self.addCleanup((self.tree / "torch").unlink)

    def assert_refused(self, result, *texts):
        self.assertEqual((result.status, result.out), (1, ""))
        for text in ("ztoolkit: ", "Set ZT_TORCH_DIR to the folder of LibTorch", *texts):
            self.assertEqual(result.err.count(text), 1, result.err)

    def test_hello(self):
        for ranks in (0, 2):
            result = self.packaged("run", self.hello, ranks=ranks, torch=TORCH)
            self.assertEqual(result.status, 0, result.err)
            self.assertIn(f"hello from rank 0 of {max(ranks, 1)}\n", result.out)
            self.assertIn("all as expected\n", result.out)
        self.assertNotIn("cannot be loaded", self.packaged("modules", torch=TORCH).out)

    def test_the_command_by_a_link_on_the_path(self):
        link = self.folder / "ztoolkit"
        link.symlink_to(self.tree / "bin/ztoolkit")
        script = self.script("for word in io.open('/proc/self/cmdline'):read('*a'):gmatch '%Z+' do print(word) end os.exit(7)")
        result = self.packaged("run", script, "two words", torch=TORCH, program=link)
        self.assertEqual((result.status, result.out), (7, f"{link}\nrun\n{script}\ntwo words\n"), result.err)

    def test_signals_reach_the_host(self):
        run = Running("run", self.script('print("started"); while true do end'), program=self.tree / "bin/ztoolkit")
        run.wait_for("started")
        run.signal(signal.SIGTERM)
        self.assertEqual(run.finish().status, 143)

    def test_no_libtorch(self):
        self.assert_refused(self.packaged("run", self.hello), "ZT_TORCH_DIR is not set",
                            f"there is no {self.tree}/torch/lib/libtorch_cpu.so")
        result = self.packaged("run", self.hello, ranks=2)
        self.assertNotEqual(result.status, 0)
        self.assertEqual(result.err.count("LibTorch is not found"), 1, result.err)
        # A folder that is named is the one that is meant: another is not taken in its place.
        self.link_beside()
        self.assert_refused(self.packaged("--version", torch="/nowhere"), "ZT_TORCH_DIR=/nowhere has no lib/libtorch_cpu.so")

    def test_another_libtorch(self):
        (self.folder / "lib").mkdir()
        (self.folder / "lib/libtorch_cpu.so").touch()
        self.assert_refused(self.packaged("--version", torch=self.folder), "neither a version.py nor a build-version")
        (self.folder / "build-version").write_text("1.2.3+cpu\n")
        self.assert_refused(self.packaged("--version", torch=self.folder), f"ZT_TORCH_DIR={self.folder} holds 1.2.3+cpu.")
        (self.folder / "version.py").write_text("from typing import Optional\n\n__version__ = '1.2.4'\n")
        self.assert_refused(self.packaged("--version", torch=self.folder), "holds 1.2.4.")

    def test_libtorch_linked_beside(self):
        self.link_beside()
        result = self.packaged("--version")
        self.assertEqual(result.status, 0, result.err)

    def test_libtorch_bundled(self):
        self.addCleanup(shutil.rmtree, self.tree / "torch")
        call(os.environ["ZT_CMAKE"], "--install", BUILD, "--component", "torch", "--prefix", self.tree)
        result = self.packaged("run", self.hello)
        self.assertEqual(result.status, 0, result.err)
        libraries = set(self.packaged("run", self.script(LIBRARIES)).out.split("\n"))
        torch = {library for library in libraries if re.search(r"/lib(torch|c10|cud|cupti|gomp)", library)}
        self.assertGreaterEqual(len(torch), 3)
        self.assertEqual([library for library in torch if not library.startswith(f"{self.tree}/torch/lib/")], [])

    def test_nothing_names_the_place_of_the_build(self):
        files = [file for file in self.tree.rglob("*") if file.is_file()]
        self.assertEqual([file for file in files if bytes(TORCH) in file.read_bytes()], [])
        programs = [file for file in files if file.read_bytes()[:4] == b"\x7fELF"]
        self.assertGreater(len(programs), 10)
        for program in programs:
            for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", call("readelf", "--dynamic", program)):
                for path in paths.split(":"):
                    self.assertTrue(path.startswith("$ORIGIN"), f"{program}: {paths}")

    @unittest.skipUnless(DEB_TOOLS, "a .deb needs dpkg-dev")
    def test_the_deb(self):
        (deb,) = self.packages.glob("*.deb")
        about = call("dpkg-deb", "--info", deb)
        self.assertIn("Package: ztoolkit\n", about)
        self.assertRegex(about, r"Depends:.* libluajit")
        self.assertRegex(about, r"Depends:.* libopenmpi")
        self.assertRegex(about, r"Depends:.* libhdf5")
        call("dpkg-deb", "--extract", deb, self.folder)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"opt", "usr"})
        packed = self.folder / "opt/ztoolkit"
        shutil.rmtree(packed / "torch", ignore_errors=True)
        names = [{path.relative_to(root) for path in root.rglob("*")} for root in (packed, self.tree)]
        self.assertEqual(*names)
        result = self.packaged("run", self.hello, torch=TORCH, program=self.folder / "usr/bin/ztoolkit")
        self.assertEqual(result.status, 0, result.err)


if __name__ == "__main__":
    unittest.main()
