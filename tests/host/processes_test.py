"""Ranks as processes under mpirun."""

import os
import pathlib
import subprocess
import unittest

from host import AT_ONCE, HostTest, ztoolkit

WORLD = 'local zt = require "zt"; local rank = zt.world.rank; '
MARK = 'print("mark", ("%.3f"):format(zt.now())); '
SHARED_MEMORY = pathlib.Path("/dev/shm")


class Processes(HostTest):
    def run_ranks(self, text, *arguments, ranks=2, **how):
        return self.run_script(text, *arguments, ranks=ranks, **how)

    def assert_soon_over(self, result):
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds_since_mark(), AT_ONCE)

    def assert_nothing_left(self, before):
        self.assertEqual(set(os.listdir(SHARED_MEMORY)) - before, set())
        listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=False).stdout
        self.assertNotIn(str(self.folder), listing)

    def test_worlds_and_marks(self):
        result = self.run_ranks(WORLD + 'print(zt.world.launch, zt.world.size); io.write("x\\n")')
        self.assertEqual(result.status, 0, result.err)
        self.assertEqual(sorted(result.out.splitlines()), ["[1] mpi\t2", "[1] x", "mpi\t2", "x"])

    def test_one_message_for_all(self):
        result = self.run_ranks(WORLD + MARK + 'error("the same for all")')
        self.assert_soon_over(result)
        self.assertEqual(result.err.count("stack traceback"), 1, result.err)
        self.assertIn("script.lua:1: the same for all", result.err)

    def test_a_wrong_command_line_is_told_once(self):
        result = ztoolkit("run", "nowhere.lua", ranks=2, cwd=self.folder)
        self.assertEqual(result.status, 2)
        self.assertEqual(result.err.count("there is no script 'nowhere.lua'"), 1)
        result = self.run_ranks("", options=["--threads", "2"])
        self.assertEqual(result.status, 2)
        self.assertEqual(result.err.count("exclude each other"), 1)

    def test_a_rank_that_fails_ends_others_in_a_loop(self):
        before = set(os.listdir(SHARED_MEMORY))
        result = self.run_ranks(WORLD + f'if rank == 1 then {MARK} error("only here") end; while true do end')
        self.assert_soon_over(result)
        self.assertEqual(result.err.count("rank 1 failed: "), 1)
        self.assert_nothing_left(before)

    def test_a_rank_that_fails_ends_others_in_a_collective(self):
        before = set(os.listdir(SHARED_MEMORY))
        result = self.run_ranks('''
            local zt, comm = require "zt", require "zt.comm"
            local mesh = comm.mesh{dp = -1}
            mesh.dp:barrier()
            if mesh.dp.coordinate == 1 then ''' + MARK + '''error("only here") end
            mesh.dp:barrier()
        ''')
        self.assert_soon_over(result)
        self.assertEqual(result.err.count(" failed: "), 1, result.err)
        self.assertIn("only here", result.err)
        self.assert_nothing_left(before)

    def test_a_rank_that_exits_ends_others_in_a_collective(self):
        result = self.run_ranks('''
            local zt, comm = require "zt", require "zt.comm"
            local mesh = comm.mesh{dp = -1}
            mesh.dp:barrier()
            if mesh.dp.coordinate == 1 then ''' + MARK + '''os.exit(3) end
            mesh.dp:barrier()
        ''')
        self.assert_soon_over(result)
        self.assertEqual(result.status, 3)
        self.assertIn("is gone: it ended by itself, with status 3 (os.exit)", result.err)
        self.assertNotIn("killed, by hand", result.err)

    def test_a_rank_that_makes_no_mesh(self):
        result = self.run_ranks('''
            local zt, comm = require "zt", require "zt.comm"
            if zt.world.rank == 1 then zt.sleep(60) end
            ''' + MARK + '''
            comm.mesh{dp = -1, timeout = 1}
        ''')
        self.assert_soon_over(result)
        self.assertIn("timed out after 1 s: rank 0 waits for all 2 ranks to start MPI", result.err)

    def test_exit_in_order_after_communication(self):
        text = '''
            local comm = require "zt.comm"
            local mesh = comm.mesh{dp = -1}
            mesh.dp:barrier()
            os.exit(tonumber(arg[1]))
        '''
        result = self.run_ranks(text, 0, env={"ZT_LOG": "warn"})
        self.assertEqual((result.status, result.out, result.err), (0, "", ""))
        self.assertEqual(self.run_ranks(text, 3).status, 3)

    def test_a_layer_that_fails_ends_the_ranks_that_wait_in_it(self):
        result = self.run_ranks('''
            local zt, comm, nn = require "zt", require "zt.comm", require "zt.nn"
            local optim, zero = require "zt.optim", require "zt.zero"
            local mesh = comm.mesh{dp = 1, tp = 2}
            local odd = nn.layer{tensor_axes = {mesh.tp}, forward = function(_, h, ctx)
              if zt.world.rank == 1 then ''' + MARK + '''error "only here" end
              return ctx:reduce_from(mesh.tp, h)
            end}
            local model = nn.sequential{nn.embedding{vocab = 3, hidden = 4}, odd, nn.lm_loss{vocab = 3, hidden = 4}}
            local trainer = zt.trainer(zt.program(model, {mesh = mesh}), {optimizer = optim.sgd{lr = 1}})
            local tokens = zt.zeros({1, 2}, {dtype = "int64"})
            trainer:step{tokens = tokens, labels = tokens}
        ''')
        self.assert_soon_over(result)
        self.assertRegex(result.err, "rank 1 failed: .*only here")

    def test_a_killed_rank_ends_the_others(self):
        before = set(os.listdir(SHARED_MEMORY))
        result = self.run_ranks(WORLD + f'if rank == 1 then {MARK} io.flush() os.execute("kill -9 $PPID") end; while true do end')
        self.assert_soon_over(result)
        self.assert_nothing_left(before)


if __name__ == "__main__":
    unittest.main()
