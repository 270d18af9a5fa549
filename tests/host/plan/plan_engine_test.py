"""`ztoolkit plan` of scripts with an engine of zt.infer: what ranks hold for weights, keys and values, beside a run."""

import json
import unittest

from host import HostTest, ztoolkit

SCRIPT = """
local zt = require "zt"
local comm, infer, nn, pipe, zero = require "zt.comm", require "zt.infer", require "zt.nn", require "zt.pipe", require "zt.zero"
local stages, parts, dtype = tonumber(arg[1]), tonumber(arg[2]), arg[3]
local mesh = comm.mesh{dp = 1, pp = stages, tp = parts}
local model = nn.gpt{family = "llama", layers = 5, hidden = 256, heads = 4, kv_heads = 2, vocab = 512, seq = 256,
                     tensor = parts > 1 and mesh.tp or nil}
local program = zt.program(model, {precision = "bf16", eval_micro_batches = stages})
if stages > 1 then program = program:apply(pipe.split{axis = mesh.pp}) end
program = program:apply(zero.shard{axis = mesh.dp, stage = 0})
local trainer = zt.trainer(program, {OPTIONS})
local engine = infer.engine{trainer = trainer, token_budget = 192, max_sequences = 48,
                            cache = {memory = tonumber(arg[4]) or 2^30, dtype = dtype}}
assert(engine.max_context == 256 and engine.vocabulary == 512)
local prompt, requests = {}, {}
for i = 1, 192 do prompt[i] = i end
for i = 1, 48 do requests[i] = {prompt = prompt, max_tokens = 2, salt = tostring(i)} end
engine:generate(requests)
local memory = {cache = engine:stats().cache_bytes}
for kind, line in pairs(trainer:memory()) do memory[kind] = line.measured end
print(zt.json.encode(memory))
"""


class PlanOfEngines(HostTest):
    def engine(self, options="separate = true"):
        return self.script(SCRIPT.replace("OPTIONS", options))

    def test_bytes_are_those_of_a_run(self):
        script = self.engine()
        for stages, parts, dtype in ((1, 1, "params"), (1, 1, "int8"), (2, 1, "params"), (1, 2, "params"), (2, 2, "params")):
            with self.subTest(stages=stages, parts=parts, dtype=dtype):
                ranks = stages * parts
                planned = ztoolkit("plan", script, stages, parts, dtype, "--ranks", ranks, "--json")
                self.assertEqual(planned.status, 0, planned.err)
                run = ztoolkit("run", "--threads", ranks, script, stages, parts, dtype)
                self.assertEqual(run.status, 0, run.err)
                kinds = [kind["memory"] for kind in json.loads(planned.out)["kinds"]]
                measured = sorted((json.loads(line[line.index("{"):]) for line in run.out.splitlines()), key=lambda memory: memory["cache"])
                # A plan has a line for each kind of rank: a stage of the pipeline.
                self.assertEqual(len(kinds), stages)
                by_rank = sorted((memory for memory in kinds for _ in range(parts)), key=lambda memory: memory["cache"])
                for plan, rank in zip(by_rank, measured, strict=True):
                    self.assertEqual(plan["cache"], rank["cache"])
                    self.assertEqual(plan["parameters"], rank["parameters"])
                    self.assertEqual(plan["total"], plan["cache"] + plan["parameters"] + plan["activations"])
                    self.assertGreaterEqual(plan["activations"], 2 * 2 * 192 // stages * 256)  # two values of all rows

    def test_a_run_without_ranks_prints_the_report(self):
        result = ztoolkit("run", "--dry", self.engine(), 1, 1, "params")
        self.assertEqual(result.status, 0, result.err)
        self.assertRegex(result.out, r"memory +cache +30\.0 MiB per rank")

    def test_a_cache_that_is_too_small(self):
        result = ztoolkit("plan", self.engine(), 1, 1, "params", 10000)
        self.assertEqual(result.status, 1)
        self.assertIn("a sequence of max_context = 256 tokens needs a cache of", result.err)

    def test_a_trainer_that_trains(self):
        result = ztoolkit("plan", self.engine('optimizer = require "zt.optim".adamw{lr = 1}'), 1, 1, "params")
        self.assertEqual(result.status, 1)
        self.assertIn("guard other calls by `if not zt.world.dry`", result.err)


if __name__ == "__main__":
    unittest.main()
