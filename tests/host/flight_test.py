"""Reports of runs that hang or fail because one rank is killed, comes late or calls another operation."""

import json
import signal
import subprocess
import time
import unittest

from host import AT_ONCE, SANITIZED, HostTest, Running, ztoolkit

START = '''
    local zt, comm = require "zt", require "zt.comm"
    local rank = zt.world.rank
    local mesh = comm.mesh{dp = -1, backend = arg[1], check = arg[2]}
    local run = zt.run{name = "run", folder = arg[3], mesh = mesh}
    local small, large = zt.ones{10}, zt.ones{300000}
    for i = 1, 3 do mesh.dp:all_reduce(small) end
    mesh.dp:set_timeout(2)
    print("mark", ("%.3f"):format(zt.now())) io.flush()
'''
BACKENDS = ("mpi", "shm")


class Flights(HostTest):
    def run_ranks(self, text, backend="mpi", check="first", ranks=2, **how):
        self.folder_of_run = self.folder / f"run-{time.monotonic_ns()}"
        return self.run_script(START + text, backend, check, self.folder_of_run, ranks=ranks, env={"ZT_LOG": "warn"}, **how)

    def flight(self, rank):
        return json.loads((self.folder_of_run / f"run/flight/rank{rank}.json").read_text())

    def assert_over(self, result):
        self.assertNotEqual(result.status, 0)
        self.assertLess(result.seconds_since_mark(), AT_ONCE, result.err)

    def assert_same_verdict_later(self, result):
        later = ztoolkit("flight", self.folder_of_run / "run", "--last", 2)
        self.assertEqual(later.status, 0, later.err)
        verdict = result.err.split("who waits for whom:\n")[1].splitlines()[0]
        self.assertEqual(later.out.splitlines()[0], verdict)
        self.assertIn("rank 1 (process ", later.out)

    def test_a_killed_rank(self):
        kill = 'os.execute("kill -9 $PPID")'
        for backend in ("mpi", "shm"):
            for phase, text in {
                "before": f"if rank == 1 then {kill} end mesh.dp:all_reduce(large)",
                "inside": f'''
                    local thread = rank == 1 and io.popen("sleep 0.3; kill -9 $PPID")
                    while true do mesh.dp:all_reduce(large) end''',
                "after": f"mesh.dp:all_reduce(large) if rank == 1 then {kill} end mesh.dp:barrier()",
            }.items():
                with self.subTest(backend=backend, phase=phase):
                    result = self.run_ranks(text, backend)
                    self.assert_over(result)
                    self.assertIn("the process of rank 1 (", result.err)
                    self.assertIn("is gone and said nothing", result.err)
                    self.assertFalse(self.flight(1)["is_alive"])
                    axis = next(each for each in self.flight(1)["communicators"] if each["axis"] == "dp")
                    self.assertGreater(axis["collectives"], 4)

    def test_a_rank_that_is_killed_while_another_sends_to_it(self):
        # A GPipe of two stages. Rank 1 is killed in its first forward, so rank 0 waits in SEND when the channel is full.
        text = '''
            local nn, optim, pipe = require "zt.nn", require "zt.optim", require "zt.pipe"
            local pipeline = comm.mesh{pp = 2, backend = arg[1]}
            local input = nn.layer{io = {inputs = {}}, forward = function(_, ctx) return ctx:batch("x") end}
            local killer = nn.layer{forward = function(_, _, h) os.execute("kill -9 $PPID") return h end}
            local model = nn.sequential{input, nn.linear{["in"] = 50, out = 50}, killer,
              zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample"})}
            local program = zt.program(model, {micro_batches = 8}):apply(
              pipe.split{schedule = "gpipe", axis = pipeline.pp, partition = {2, 2}})
            local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
            trainer:step{x = zt.ones{800, 50}}'''
        for backend in BACKENDS:
            result = self.run_ranks(text, backend)
            self.assert_over(result)
            self.assertRegex(result.err, r"SEND 1 \d axes=")
            self.assertIn("pp forward 0>1", result.err)
            self.assertIn("the process of rank 1 (", result.err)
        self.assertRegex(result.err, r"action SEND 1 (\d) [^(]*\(position '[^']+', micro-batch \1\): ")

    def test_a_rank_that_is_killed_while_another_sends_tokens_to_its_experts(self):
        text = '''
            local moe, nn, optim, zero = require "zt.moe", require "zt.nn", require "zt.optim", require "zt.zero"
            local experts = comm.mesh{ep = 2, backend = arg[1]}
            local input = nn.layer{io = {inputs = {}}, forward = function(_, ctx) return ctx:batch("x") end}
            local steps = 0
            local killer = nn.layer{forward = function(_, h)
              steps = steps + 1
              if rank == 1 and steps == 2 then os.execute("kill -9 $PPID") end
              return h
            end}
            local model = nn.sequential{input, nn.linear{["in"] = 8, out = 8}, killer,
              {"mixture", moe.layers{experts = 4, hidden = 8, ffn = 16, axis = experts.ep}},
              zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample"})}
            local program = zt.program(model):apply(zero.shard{stage = 2, axis = experts.ep})
            local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
            for step = 1, 2 do trainer:step{x = zt.ones{4, 5, 8}} end'''
        for backend in BACKENDS:
            result = self.run_ranks(text, backend)
            self.assert_over(result)
            self.assertRegex(result.err, r"(action F 4 0 .*all_to_all of int64 on axis 'ep'|all_to_all of int64, .* on axis ep \(F 4 0\))")
            self.assertIn("the process of rank 1 (", result.err)
            self.assertIn("is gone and said nothing", result.err)
        self.assertRegex(result.err, r"action F \d 0 \(position 'mixture\.dispatch', micro-batch 0\): ")

    @unittest.skipIf(SANITIZED, "a sanitizer reports crashes itself")
    def test_a_rank_that_is_killed_in_a_step_of_the_ring(self):
        # Rank 1 is killed before the attention of its second micro-batch, so rank 0 waits there for its keys and values.
        text = '''
            local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"
            local ring = comm.mesh{dp = 1, cp = 2, backend = arg[1]}
            local killer = nn.layer{context = {axis = ring.cp}, forward = function(_, h, ctx)
              if rank == 1 and ctx.micro_batch == 1 then os.execute("kill -9 $PPID") end
              return h
            end}
            local model = nn.sequential{{"embedding", nn.embedding{vocab = 5, hidden = 8}}, {"killer", killer},
              {"attention", nn.attention{hidden = 8, heads = 2, context = {axis = ring.cp, method = "ring"}}},
              {"head", nn.lm_loss{vocab = 5, hidden = 8}}}
            local program = zt.program(model, {micro_batches = 2}):apply(zero.shard{axis = ring.dp})
            local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
            local tokens = zt.zeros({2, 8}, {dtype = "int64"})
            trainer:step{tokens = tokens, labels = tokens}'''
        for backend in BACKENDS:
            result = self.run_ranks(text, backend)
            self.assert_over(result)
            self.assertRegex(result.err, r"(action F 2 1 .*all_to_all of float32 on axis 'cp'|all_to_all of float32, .* on axis cp \(F 2 1\))")
            self.assertIn("the process of rank 1 (", result.err)
        self.assertRegex(result.err, r"action F 2 1 \(position 'attention', micro-batch 1\): ")

    @unittest.skipIf(SANITIZED, "a sanitizer reports crashes itself")
    def test_a_follower_of_an_engine_that_is_killed(self):
        # Rank 1 is killed at the third token of answers that both compute together: in a forward, or between two steps.
        text = '''
            local nn, infer = require "zt.nn", require "zt.infer"
            local ranks = comm.mesh{dp = 1, tp = 2, backend = arg[1], timeout = 2}
            local seen = 0
            local killer = nn.layer{tokens = "separate", forward = function(_, h)
              seen = seen + 1
              if rank == 1 and arg[4] == "forward" and seen == 3 then os.execute("kill -9 $PPID") end
              return h
            end}
            local layers = {{"embedding", nn.embedding{vocab = 32, hidden = 16}},
              {"block", nn.block{hidden = 16, heads = 2, tensor = ranks.tp}}, {"killer", killer},
              {"head", nn.lm_loss{vocab = 32, hidden = 16}}}
            local trainer = zt.trainer(zt.program(nn.sequential(layers), {mesh = ranks}), {separate = true})
            local engine = infer.engine{trainer = trainer, max_context = 64, cache = {memory = 1e6}}
            local texts = 0
            local requests = {{prompt = {1, 2, 3}, max_tokens = 30}, {prompt = {4, 5}, max_tokens = 30}}
            for _, request in ipairs(requests) do engine:submit(request) end
            for step in function() return engine:step() end do
              texts = texts + 1
              if rank == 1 and texts == 3 then os.execute("kill -9 $PPID") end
            end'''
        for backend in BACKENDS:
            for place in ("forward", "step"):
                with self.subTest(backend=backend, place=place):
                    result = self.run_ranks(text.replace("arg[4]", f'"{place}"'), backend)
                    self.assert_over(result)
                    self.assertIn("the process of rank 1 (", result.err)
                    self.assertIn("is gone and said nothing", result.err)

    def test_a_rank_that_crashes(self):
        result = self.run_ranks('''
            if rank == 1 then require("ffi").cast("int*", 8)[0] = 1 end
            mesh.dp:all_reduce(large)''')
        self.assert_over(result)
        self.assertIn("ztoolkit: rank 1 crashed: segmentation fault (SIGSEGV)\n", result.err)
        self.assertIn("rank 1 has not called it: it crashed (segmentation fault (SIGSEGV))", result.err)
        self.assertEqual(self.flight(1)["end"], "it crashed (segmentation fault (SIGSEGV))")

    def test_a_rank_that_does_not_come(self):
        for backend in BACKENDS:
            result = self.run_ranks("if rank == 1 then zt.sleep(60) end mesh.dp:all_reduce(large)", backend)
            self.assert_over(result)
            self.assertIn("communication timed out after 2 s", result.err)
            self.assertRegex(result.err, r"rank 0 waits in all_reduce of 300000 float32 \(sum\), operation \d on axis dp, for 2.\d s; "
                             r"rank 1 has not called it: its last call was all_reduce of 10 float32 \(sum\), operation \d on axis dp")
            self.assert_same_verdict_later(result)

    def test_a_rank_whose_script_has_ended(self):
        # The timeout of an operation (50 s) is much later.
        for backend in BACKENDS:
            for end in ("os.exit(0)", "return"):
                with self.subTest(backend=backend, end=end):
                    text = f"mesh.dp:set_timeout(50) if rank == 1 then {end} end mesh.dp:all_reduce(large)"
                    self.assert_ended_is_told(self.run_ranks(text, backend))

    def assert_ended_is_told(self, result):
        self.assert_over(result)
        self.assertIn("for rank 1 (world rank 1), whose script has ended", result.err)
        self.assertIn("rank 1 has not called it: its script has ended", result.err)

    def test_a_thread_whose_script_has_ended(self):
        for end in ("os.exit(0)", "return"):
            result = self.run_script(f'''
                local zt, comm = require "zt", require "zt.comm"
                local mesh = comm.mesh{{dp = -1, timeout = 50}}
                mesh.dp:barrier()
                if zt.world.rank == 1 then {end} end
                print("mark", ("%.3f"):format(zt.now()))
                mesh.dp:barrier()''', options=["--threads", "3"])
            self.assertEqual(result.status, 1)
            self.assert_ended_is_told(result)

    def test_ranks_that_end_after_their_last_call_disturb_nobody(self):
        text = '''
            local function late() if rank == 0 then zt.sleep(1.5) end end
            mesh.dp:set_timeout(50)
            mesh.dp:all_reduce(large)
            if rank == 0 then late() mesh.dp:recv(small, 1) late()
            elseif rank == 1 then mesh.dp:send(small, 0) end
            if rank == 0 then print("written") end'''
        for backend in BACKENDS:
            result = self.run_ranks(text, backend)
            self.assertEqual((result.status, result.err), (0, ""), backend)
            self.assertIn("written", result.out)

    def test_a_rank_that_is_stopped(self):
        result = self.run_ranks('''
            if rank == 1 then os.execute("kill -STOP $PPID") end
            mesh.dp:all_reduce(large)''', "shm")
        self.assertNotEqual(result.status, 0)
        self.assertRegex(result.err, r"the process of rank 1 \((\d+)\) is stopped, by SIGSTOP.*kill -CONT \1")

    def test_a_rank_that_calls_something_else(self):
        text = '''
            for i = 1, 100 do mesh.dp:all_reduce(small) end
            if rank == 2 then mesh.dp:all_gather(zt.ones{4 * 512}, zt.ones{512})
            else mesh.dp:reduce_scatter(zt.ones{256}, zt.ones{1024}) end'''
        for backend, check in (("mpi", "full"), ("shm", "first")):
            result = self.run_ranks(text, backend, check, ranks=4)
            self.assert_over(result)
            self.assertRegex(result.err, r"rank 2 called all_gather of 512 float32 where the others called reduce_scatter of 1024 "
                             r"float32 \(sum\), operation \d+ on axis dp")
            self.assertIn("all ranks have to make the same calls in the same order", result.err)
            self.assertNotIn("timed out", result.err)
        # Calls are no longer compared: the timeout detects the difference, and the flight records show it.
        result = self.run_ranks(text.replace("else ", "else zt.sleep(0.5) "), "mpi", "first", ranks=4)
        self.assert_over(result)
        self.assertIn("rank 2 called all_gather of 512 float32 where the others called reduce_scatter", result.err)

    def test_records_that_cannot_be_written_in_time(self):
        # Another process holds the lock of a record, so the record cannot be written for 40 seconds. If two ranks time out, one prints the
        # report and the other waits for it.
        for ranks in (2, 3):
            with self.subTest(ranks=ranks):
                result = self.run_ranks(f'''
                    local last = rank == {ranks - 1}
                    if not last then
                      os.execute(("cd %s/run && mkdir -p flight && (flock flight/rank0.json.partial sleep 40 >/dev/null 2>&1 &)"):format(arg[3]))
                    end
                    mesh.dp:barrier()
                    if last then os.exit(0) end
                    mesh.dp:all_reduce(large)''', ranks=ranks)
                self.assert_over(result)
                self.assertEqual(result.err.count("who waits for whom"), 1, result.err)
                self.assertIn(f"rank {ranks - 1} has not called it: its script has ended", result.err)
                self.assertEqual(result.err.count("run/flight within 700 ms"), 1, result.err)

    def test_two_axes_in_different_orders(self):
        result = self.run_script('''
            local zt, comm = require "zt", require "zt.comm"
            local mesh = comm.mesh{dp = 2, tp = 2, order = {"dp", "tp"}, timeout = 2}
            local x, both = zt.ones{10}, {mesh.dp, mesh.tp}
            print("mark", ("%.3f"):format(zt.now())) io.flush()
            local first = (zt.world.rank == 0 or zt.world.rank == 3) and 1 or 2
            both[first]:all_reduce(x)
            both[3 - first]:all_reduce(x)
        ''', ranks=4)
        self.assert_over(result)
        self.assertRegex(result.err, r"ranks 0[-, ].*wait for each other: they make these calls in different orders")

    def test_a_message_without_its_other_side(self):
        result = self.run_ranks("if rank == 0 then mesh.dp:recv(large, 1) else mesh.dp:set_timeout(9) mesh.dp:barrier() end", "shm")
        self.assert_over(result)
        self.assertRegex(result.err, r"rank 0 waits in recv of 300000 float32 from rank 1, message 0 on axis dp, for 2.\d s; "
                         r"rank 1 has not called it: it is in barrier")

    def test_the_question_what_it_is_doing(self):
        text = START + "mesh.dp:set_timeout(60) zt.sleep(rank * 30) mesh.dp:all_reduce(large)"
        run = Running("run", self.script(text), "shm", "first", self.folder, ranks=2)
        run.wait_for("mark")
        time.sleep(0.5)
        run.signal(signal.SIGUSR1)
        path = self.folder / "run/flight/rank0.json"
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
        self.assertIsNone(run.process.poll())
        run.signal(signal.SIGINT)
        result = run.finish()
        self.assertIn("rank 0 waits in all_reduce of 300000 float32", result.err)
        self.assertIn("rank 1 has not called it", result.err)

    def test_a_rank_that_gets_no_memory(self):
        result = self.run_ranks('''
            if rank == 1 then os.execute("prlimit --fsize=1048576 --pid $PPID") end
            mesh.dp:allocate{1000000}''', "shm")
        self.assert_over(result)
        self.assertEqual(result.err.count("rank 1 (world rank 1): cannot get 3.8 MiB of shared memory (setting its size: File too "
                                          "large)"), 1, result.err)

    def test_actions_of_a_program_are_named(self):
        self.run_ranks('''
            local nn, optim, zero = require "zt.nn", require "zt.optim", require "zt.zero"
            local input = nn.layer{io = {inputs = {}}, forward = function(_, ctx) return ctx:batch("x") end}
            local model = nn.sequential{input, nn.linear{["in"] = 2, out = 2}, zt.loss(function(out) return out.h:sum() end, {inputs = {"h"}, per = "sample"})}
            local trainer = zt.trainer(zt.program(model, {micro_batches = 1}):apply(zero.shard{stage = 1, axis = mesh.dp}), {
              optimizer = optim.sgd{lr = 0.1}})
            trainer:step{x = zt.ones{2, 2}}
            error "now"''', "mpi")
        actions = {call["action"] for ring in self.flight(0)["communicators"] for call in ring["calls"]}
        self.assertTrue(any(action.startswith("REDUCE_GRAD") for action in actions), actions)

    def test_a_record_that_is_not_there(self):
        result = ztoolkit("flight", self.folder)
        self.assertEqual(result.status, 1)
        self.assertIn("cannot read the flight records in", result.err)
        self.assertEqual(ztoolkit("flight").status, 2)


if __name__ == "__main__":
    unittest.main()
