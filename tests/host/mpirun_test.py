"""Runs that mpirun starts: ztoolkit run -n N."""

import os
import unittest

from host import MPIRUN, HostTest

WORLD = 'local world = require("zt").world\n'
CORES = len(os.sched_getaffinity(0))


@unittest.skipUnless(MPIRUN, "needs mpirun")
class Mpirun(HostTest):
    def test_each_rank_runs_the_script_with_its_arguments(self):
        result = self.run_script(WORLD + 'io.write(world.rank, " of ", world.size, " ", arg[1], "\\n")', "two words", options=["-n", 2])
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(sorted(result.out.splitlines()), ["0 of 2 two words", "[1] 1 of 2 two words"])

    def test_ranks_that_share_cores_are_said(self):
        result = self.run_script(WORLD + "print(world.size)", options=["-n", CORES + 1])
        self.assertEqual(result.status, 0, result.err)
        self.assertRegex(result.err, rf"ztoolkit: {CORES + 1} ranks share \d+ cores?, so each computes more slowly")
        self.assertNotIn("share", self.run_script("print(1)", options=["-n", 1]).err)

    def test_a_failure_ends_the_run(self):
        result = self.run_script(WORLD + 'if world.rank == 1 then error("only here") end', options=["-n", 2])
        self.assertNotEqual(result.status, 0)
        self.assertIn("ztoolkit: rank 1 failed: ", result.err)

    def test_what_is_refused(self):
        nowhere = {"PATH": "/nowhere"}
        result = self.run_script("", options=["-n", 2], env=nowhere)
        self.assertEqual(result.status, 1)
        self.assertIn("cannot start mpirun (No such file or directory): install Open MPI and put it on PATH, or let", result.err)
        result = self.run_script("", options=["-n", 2, "--threads", 2])
        self.assertEqual(result.status, 2)
        self.assertIn("excludes", result.err)
        self.assertEqual(self.run_script("", options=["-n", 0]).status, 2)
        result = self.run_script("", options=["-n", 2], ranks=1)
        self.assertNotEqual(result.status, 0)
        self.assertIn("-n starts mpirun, and this process is a rank of mpirun already", result.err)


if __name__ == "__main__":
    unittest.main()
