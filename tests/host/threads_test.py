"""Ranks as threads of one process: `ztoolkit run --threads N`."""

import unittest

from host import AT_ONCE, HostTest

THREE = ["--threads", "3"]
WORLD = 'local zt = require "zt"; local rank = zt.world.rank; '


class Threads(HostTest):
    def test_worlds(self):
        result = self.run_script(WORLD + "print(zt.world.launch, zt.world.size, rank)", options=THREE)
        self.assertEqual((result.status, result.err), (0, ""))
        self.assertEqual(sorted(result.out.splitlines()), ["[1] threads\t3\t1", "[2] threads\t3\t2", "threads\t3\t0"])

    def test_lines_are_whole_and_marked(self):
        result = self.run_script(WORLD + '''
            for i = 1, 300 do print("line", i, nil, {} ~= nil) end
            io.write("a", 1, "\\nb\\n\\n")
            io.stdout:write("c", "d"):write("e\\n")
            io.stderr:write("to stderr\\n")
            io.write("no end of line")
        ''', options=THREE)
        self.assertEqual(result.status, 0, result.err)
        for rank, mark in enumerate(("", "[1] ", "[2] ")):
            lines = [line for line in result.out.splitlines() if line.startswith("[") == (rank > 0) and line.startswith(mark)]
            wanted = [f"{mark}line\t{i}\tnil\ttrue" for i in range(1, 301)]
            self.assertEqual(lines, wanted + [f"{mark}a1", f"{mark}b", mark, f"{mark}cde", f"{mark}no end of line"])
            self.assertIn(f"{mark}to stderr\n", result.err)

    def test_files_are_not_marked(self):
        result = self.run_script(WORLD + '''
            local path = arg[1] .. rank
            local f = assert(io.open(path, "w"))
            f:write("one\\n")
            f:close()
            io.output(path .. "b"):write("two\\n")
            io.write("three\\n")
            io.close()
        ''', self.folder / "out", options=THREE)
        self.assertEqual((result.status, result.out, result.err), (0, "", ""))
        for rank in range(3):
            self.assertEqual((self.folder / f"out{rank}").read_text(), "one\n")
            self.assertEqual((self.folder / f"out{rank}b").read_text(), "two\nthree\n")

    def test_one_message_for_all_and_one_for_each_other(self):
        result = self.run_script('error("the same for all")', options=THREE)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.err.count('failed: '), 1)
        self.assertEqual(result.err.count("stack traceback"), 1)
        result = self.run_script(WORLD + 'error("from " .. rank)', options=THREE)
        for rank in range(3):
            self.assertRegex(result.err, rf"ztoolkit: rank {rank} failed: .*script\.lua:1: from {rank}\n")

    def test_a_failed_step_is_reported_once(self):
        result = self.run_script(WORLD + '''
            local zt, comm, nn = require "zt", require "zt.comm", require "zt.nn"
            local optim, zero = require "zt.optim", require "zt.zero"
            local mesh = comm.mesh{dp = 3}
            local model = nn.sequential{seed = 1, {"embedding", nn.embedding{vocab = 5, hidden = 4}},
                {"own", nn.layer{forward = function(_, h) if rank == 1 then error("only here") end return h end}},
                {"head", nn.lm_loss{vocab = 5, hidden = 4}}}
            local program = zt.program(model):apply(zero.shard{axis = mesh.dp})
            local tokens = zt.full({2, 3}, rank, {dtype = "int64"})
            zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}}):step{tokens = tokens, labels = tokens}
        ''', options=THREE)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.err.count("only here"), 1, result.err)
        self.assertIn("ztoolkit: rank 1 failed: ", result.err)
        self.assertRegex(result.err, r"script\.lua:6: in function")

    def test_a_rank_that_fails_ends_the_others_in_a_loop(self):
        result = self.run_script(WORLD + 'if rank == 1 then error("only here") end; while true do end', options=THREE)
        self.assertEqual(result.status, 1)
        self.assertIn("rank 1 failed: ", result.err)
        self.assertLess(result.seconds, AT_ONCE)

    def test_exit_status(self):
        self.assertEqual(self.run_script("os.exit(0)", options=THREE).status, 0)
        result = self.run_script(WORLD + "if rank == 2 then os.exit(9) end", options=THREE)
        self.assertEqual((result.status, result.err), (9, ""))
        result = self.run_script("os.exit(9)", options=THREE)
        self.assertEqual((result.status, result.err), (9, ""))
        result = self.run_script(WORLD + 'print("x"); if rank == 0 then os.exit(0) end; for i = 1, 1e7 do end; print("y")', options=THREE)
        self.assertEqual((result.status, sorted(result.out.splitlines())), (0, ["[1] x", "[1] y", "[2] x", "[2] y", "x"]))

    def test_a_rank_that_exits_ends_others_in_a_collective(self):
        result = self.run_script('''
            local zt, comm = require "zt", require "zt.comm"
            local mesh = comm.mesh{dp = -1}
            mesh.dp:barrier()
            if mesh.dp.coordinate == 1 then os.exit(3) end
            mesh.dp:barrier()
        ''', options=THREE, env={"ZT_LOG": "warn"})
        self.assertEqual(result.status, 3)
        self.assertEqual(result.err, "ztoolkit: rank 1 ended by itself, with status 3 (os.exit), so the other ranks end, too\n")
        self.assertLess(result.seconds, AT_ONCE)

    def test_a_rank_that_fails_ends_others_in_a_collective(self):
        result = self.run_script('''
            local zt, comm = require "zt", require "zt.comm"
            local mesh = comm.mesh{dp = -1}
            if mesh.dp.coordinate == 2 then error("only here") end
            mesh.dp:barrier()
        ''', options=THREE)
        self.assertEqual(result.status, 1)
        self.assertEqual(result.err.count("failed: "), 1, result.err)
        self.assertIn("only here", result.err)
        self.assertLess(result.seconds, AT_ONCE)


if __name__ == "__main__":
    unittest.main()
