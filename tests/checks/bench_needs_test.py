#!/usr/bin/env python3
"""Runs each script below bench with a Python without packages: --help must work, or a line must name packages and command."""

import pathlib
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
# Scripts that need only the standard library. All others must say what they need.
WITHOUT_PACKAGES = {"backends.py", "needs.py", "plan_table.py", "published_runs.py", "rlhf_vs_turns.py",
                    "stage_losses.py"}


class Needs(unittest.TestCase):
    def test_every_script(self):
        scripts = sorted(BENCH.rglob("*.py"))
        self.assertGreater(len(scripts), len(WITHOUT_PACKAGES))
        for script in scripts:
            with self.subTest(script.name):
                # -S: no site-packages, -E: no PYTHONPATH, -B: no bytecode in the sources' folder.
                done = subprocess.run([sys.executable, "-B", "-S", "-E", script, "--help"], capture_output=True, text=True)
                self.assertNotIn("Traceback", done.stderr)
                if script.name in WITHOUT_PACKAGES:
                    self.assertEqual(done.returncode, 0, done.stderr)
                    continue
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn("this needs ", done.stderr)
                self.assertRegex(done.stderr, "numpy|torch")
                self.assertRegex(done.stderr,
                                 r"run `scripts/setup\.sh --(oracle|peers)` and use `\.venv-(oracle|huggingface|peers|rlhf)/bin/python bench/peers/")


if __name__ == "__main__":
    unittest.main()
