"""`ztoolkit plan`: what the ranks of a run would hold, do and send."""

import json
import re
import unittest

from host import SOURCE, HostTest, ztoolkit

SCRIPT = """
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local stage, layers, hidden, vocab = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
print("the script prints this")
local mesh = comm.mesh{dp = -1}
local model = nn.gpt{layers = layers, hidden = hidden, heads = hidden / 64, vocab = vocab, seq = 64, tied = false}
local precision = {params = "bf16", grads = "bf16"}
local program = zt.program(model, {micro_batches = 2, precision = precision}):apply(zero.shard{stage = stage, axis = mesh.dp})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3}})
print(model:numel())
local tokens = zt.zeros({4, 64}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
print("not reached")
"""


class Plan(HostTest):
    def plan(self, *arguments, options=()):
        script = self.script(SCRIPT)
        return ztoolkit("plan", script, *arguments, *options)

    def json(self, *arguments, ranks):
        result = self.plan(*arguments, options=("--ranks", ranks, "--json"))
        self.assertEqual(result.status, 0, result.err)
        self.assertIn("the script prints this", result.err)
        return json.loads(result.out), int(result.err.split("\n")[1])

    def test_ranks_of_one_machine_hold_parameters_once(self):
        apart, parameters = self.json(1, 3, 256, 1000, ranks=4)
        near = json.loads(self.plan(1, 3, 256, 1000, options=("--ranks", 4, "--ranks-per-node", 4, "--json")).out)
        held = [plan["kinds"][0]["memory"]["parameters"] for plan in (apart, near)]
        self.assertGreaterEqual(held[0], 2 * parameters)
        self.assertEqual(held[0], 4 * held[1])

    def test_the_program_is_that_of_the_run(self):
        text = """
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local mesh = comm.mesh{dp = -1}
local model = nn.gpt{layers = 2, hidden = 64, heads = 1, vocab = 50, seq = 8}
local shard = {stage = 3, axis = mesh.dp, bucket_bytes = 0}
for key, value in arg[1]:gmatch("(%w+)=(%w+)") do shard[key] = value == "true" end
if arg[2] == "apart" then shard.node_shared = false end
local trainer = zt.trainer(zt.program(model):apply(zero.shard(shard)), {optimizer = optim.adamw{lr = 1e-3}})
if zt.world.rank == 0 then print(trainer:text()) end
if not zt.world.dry then return end
local tokens = zt.zeros({1, 8}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
"""
        script = self.script(text)

        def program_of(*arguments):
            result = ztoolkit(*arguments)
            self.assertEqual(result.status, 0, result.err)
            return [line for line in result.out.split("\n") if line.split(" ")[0] in ("program", "unit", "UNSHARD", "REDUCE_GRAD")]

        ran = program_of("run", "--threads", 2, script, "none", "none")
        self.assertTrue(any("params=node_shared" in line for line in ran))
        self.assertEqual(program_of("plan", script, "none", "none", "--ranks", 2, "--backend", "local"), ran)
        self.assertEqual(program_of("plan", script, "none", "none", "--ranks", 2, "--ranks-per-node", 2), ran)
        # A run over nccl overlaps communication and shares no memory, also if its ranks are on one machine.
        planned = program_of("plan", script, "none", "none", "--ranks", 64, "--backend", "nccl", "--ranks-per-node", 8)
        self.assertEqual(planned, program_of("plan", script, "overlap=true", "apart", "--ranks", 64))
        self.assertFalse(any("wait=true" in line or "params=node_shared" in line for line in planned))
        for rank in (0, 63):
            self.assertEqual(ztoolkit("plan", script, "none", "none", "--ranks", 64, "--rank", rank, "--backend", "mpi").status, 0)
        wrong = ztoolkit("plan", script, "none", "none", "--ranks", 2, "--backend", "ncll")
        self.assertEqual(wrong.status, 1)
        self.assertIn("--backend must be one of 'shm'", wrong.err)
        # A backend that the machines of the planned run do not allow is refused, as the run would refuse it.
        apart = ztoolkit("plan", script, "none", "none", "--ranks", 4, "--backend", "shm")
        self.assertEqual(apart.status, 1)
        self.assertIn("on one machine, and they are on several: take 'mpi' or 'two_level', or say by --ranks-per-node", apart.err)
        self.assertEqual(
            ztoolkit("plan", script, "none", "none", "--ranks", 4, "--backend", "shm", "--ranks-per-node", 4).status, 0)

    def test_memory_follows_the_formulas(self):
        for stage, formula in enumerate((lambda p, n: 16 * p, lambda p, n: 4 * p + 12 * p / n, lambda p, n: 2 * p + 14 * p / n,
                                         lambda p, n: 16 * p / n)):
            plan, parameters = self.json(stage, 3, 256, 1000, ranks=8)
            self.assertEqual(plan["ranks"], 8)
            self.assertEqual([(kind["ranks"], kind["count"]) for kind in plan["kinds"]], [("0-7", 8)])
            memory = plan["kinds"][0]["memory"]
            states = sum(memory[kind] for kind in ("parameters", "master", "gradients", "optimizer"))
            # Units are padded to 256 elements per rank. Stages 2 and 3 also need some buffers of a unit's size, for whole
            # gradients and parameters.
            largest = max(3 * 256 * 256 + 8 * 256 * 256 + 20 * 256, 1000 * 256 + 64 * 256)
            slack = 16 * 256 * 8 * 5 + (2 * 6 * largest if stage >= 2 else 0)
            self.assertGreaterEqual(states, formula(parameters, 8))
            self.assertLessEqual(states, formula(parameters, 8) + slack, stage)
            self.assertGreater(memory["activations"], 0)
            self.assertEqual(memory["total"], states + memory["buckets"] + memory["activations"])

    def test_a_trillion_parameters_on_4096_ranks(self):
        plan, parameters = self.json(3, 128, 25600, 51200, ranks=4096)
        self.assertGreater(parameters, 1e12)
        self.assertEqual(plan["kinds"][0]["count"], 4096)
        self.assertEqual(plan["kinds"][0]["actions"]["STEP"], 130)
        self.assertGreater(plan["kinds"][0]["sent"]["UNSHARD"], 2 * parameters)

    def test_ranks_that_share_matrices_and_layers(self):
        """Llama-3 70B and 8B on 8 x 4 x 16 ranks beside the sums of docs/plans.md."""
        self.check_llama(layers=80, hidden=8192, heads=64, ffn=28672, blocks=21)
        self.check_llama(layers=80, hidden=8192, heads=64, ffn=28672, blocks=21, more=["--selective"])
        self.check_llama(layers=32, hidden=4096, heads=32, ffn=14336, blocks=9)

    def check_llama(self, layers, hidden, heads, ffn, blocks, more=()):
        """blocks: those of the second stage, and of the third."""
        queries, keys, vocab, tokens, tp, micro_batches = heads * 128, 8 * 128, 128256, 8192, 8, 16
        result = ztoolkit("plan", SOURCE / "bench/plans/gpt.lua", "--ranks", 512, "--json", "--family", "llama", "--layers", layers,
                          "--hidden", hidden, "--heads", heads, "--kv-heads", 8, "--ffn", ffn, "--vocab", vocab, "--seq", tokens,
                          "--tp", tp, "--sequence-parallel", "--pp", 4, "--micro-batches", micro_batches, "--stage", 1, *more)
        self.assertEqual(result.status, 0, result.err)
        kinds = json.loads(result.out)["kinds"]
        self.assertEqual([kind["ranks"] for kind in kinds], ["0-127", "128-255", "256-383", "384-511"])
        # A rank of the second stage has an eighth of the matrices of its blocks, and their norms. It owns a 16th of the former, and
        # a 128th of the latter, whose gradients are summed over tp, too.
        matrices, norms = blocks * hidden * (2 * queries + 2 * keys + 3 * ffn) // tp, blocks * 2 * hidden
        owned = matrices / 16 + norms / 16 / tp
        memory = kinds[1]["memory"]
        for kind, count in (("parameters", 2 * (matrices + norms)), ("gradients", 4 * (matrices + norms)), ("master", 4 * owned),
                            ("optimizer", 8 * owned)):
            self.assertGreaterEqual(memory[kind], count)
            self.assertLess(memory[kind], 1.002 * count, kind)  # units are padded to 256 elements per data-parallel rank
        # It keeps a micro-batch more than the third stage.
        share = tokens // tp
        kept = 2 * 4 * share * hidden + 2 * tokens * (2 * queries + 2 * keys + 2 * ffn) // tp + 4 * tokens * heads // tp + 4 * 2 * share
        if "--selective" in more:
            kept -= 2 * 2 * share * hidden + 2 * tokens * queries // tp + 4 * tokens * heads // tp
        self.assertEqual(memory["activations"] - kinds[2]["memory"]["activations"], blocks * kept)
        # A gather or reduce_scatter of all tokens: 4 forward, and backward 4 and 2 of the inputs of matrices.
        self.assertEqual(kinds[1]["along"]["tp"], micro_batches * blocks * 10 * 2 * tokens * hidden * (tp - 1) // tp)
        self.assertEqual(kinds[1]["along"]["pp"], micro_batches * 2 * 2 * share * hidden)

    def test_text(self):
        result = self.plan(1, 2, 128, 100, options=("--ranks", 4, "--rank", 2))
        self.assertEqual(result.status, 0, result.err)
        for text in ("the script prints this", "ranks 0-3 (4 alike)", "parameters", "total", "REDUCE_GRAD", "per step"):
            self.assertIn(text, result.out)
        self.assertNotIn("not reached", result.out)

    def test_wrong_command_lines(self):
        for options, text in ((("--ranks", 0), "--ranks"), (("--ranks", 4, "--rank", 4), "no rank 4 of 4")):
            result = self.plan(1, 2, 128, 100, options=options)
            self.assertEqual(result.status, 2, result.err)
            self.assertIn(text, result.err)
        self.assertEqual(ztoolkit("plan").status, 2)

    def test_schedules_compared(self):
        script = self.script("""
local zt = require "zt"
local comm, nn, optim, pipe = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.pipe"
local mesh = comm.mesh{pp = -1}
local model = nn.gpt{layers = 6, hidden = 32, heads = 1, vocab = 50, seq = 8}
local split = pipe.split{axis = mesh.pp, partition = arg[1] == "list" and {3, 5} or nil}
local trainer = zt.trainer(zt.program(model, {micro_batches = 4}):apply(split), {optimizer = optim.adamw{lr = 1e-3}})
local tokens = zt.zeros({4, 8}, {dtype = "int64"})
trainer:step{tokens = tokens, labels = tokens}
""")
        result = ztoolkit("plan", "--ranks", 2, "--compare", "gpipe,zb_v", "--json", script)
        self.assertEqual(result.status, 0, result.err)
        compared = json.loads(result.out)["compared"]
        self.assertEqual([row["schedule"] for row in compared], ["gpipe", "zb_v"])
        for row in compared:
            self.assertGreater(row["seconds"], row["barrier_bubble"])
            self.assertGreater(row["peak_bytes"], 0)
        text = ztoolkit("plan", script, "list", "--ranks", 2, "--compare", "one_f_one_b,zb_v").out
        self.assertIn("span bubble", text)
        self.assertRegex(text, r"\none_f_one_b +[0-9.]+ ")
        self.assertIn("zb_v: pipe.split.partition lists 2 stages, and the schedule has 4", text)
        picture, trace = self.folder / "step.svg", self.folder / "step.json"
        drawn = ztoolkit("plan", script, "--ranks", 2, "--costs", "h200", "--picture", picture, "--trace", trace)
        self.assertEqual(drawn.status, 0, drawn.err)
        self.assertIn(f"wrote {picture}\nwrote {trace}\n", drawn.out)
        self.assertIn("<svg", picture.read_text())
        refused = ztoolkit("plan", script, "--ranks", 2, "--costs", "h200", "--picture", "step.png")
        self.assertEqual(refused.status, 1)
        self.assertIn("option '--picture' needs the name of an SVG file, NAME.svg, got 'step.png'", refused.err)
        wrong = ztoolkit("plan", script, "--ranks", 2, "--compare", "gpipe,1f1b")
        self.assertEqual(wrong.status, 1)
        self.assertIn("there is no pipeline schedule '1f1b'", wrong.err)
        alone = self.plan(1, 2, 128, 100, options=("--compare", "gpipe"))
        self.assertEqual(alone.status, 1)
        self.assertIn("the program has no pipeline, so it has no schedule: apply pipe.split first", alone.err)

    def simulated(self, *options, ranks=16):
        """Returns the text and the JSON of a simulated step at stage 3."""
        options = ("--ranks", ranks, *options)
        text = self.plan(3, 4, 512, 1000, options=options)
        self.assertEqual(text.status, 0, text.err)
        return text.out, json.loads(self.plan(3, 4, 512, 1000, options=(*options, "--json")).out)["simulation"]

    def test_rate_and_mfu(self):
        text, simulation = self.simulated("--costs", "a100", "--ranks-per-node", 4)
        work = simulation["work"]
        self.assertEqual((work["samples"], work["tokens"]), (16 * 4, 16 * 4 * 64))
        self.assertAlmostEqual(work["mfu"], work["flops"] / (16 * 312e12) / simulation["seconds"], delta=1e-9)
        self.assertLess(work["mfu"], 0.7)
        rate = work["tokens"] / simulation["seconds"]
        stated = re.search(r"\nrate +([\d.]+) k tokens/s, ([\d.]+) k per rank; ([\d.]+) % MFU", text)
        self.assertAlmostEqual(1e3 * float(stated[1]) / rate, 1, delta=0.06)
        self.assertAlmostEqual(1e3 * float(stated[2]) * 16 / rate, 1, delta=0.06)
        self.assertAlmostEqual(float(stated[3]), 100 * work["mfu"], delta=0.06)
        self.assertIn("\nassumes   4 ranks per machine, bf16 312 TFLOP/s x 0.7, memory 2039 GB/s x 0.8, ", text)

    def test_machines_and_their_cards(self):
        def seconds(*options):
            return self.simulated("--costs", *options)[1]["seconds"]

        one, eight = seconds("h100", "--ranks-per-node", 1), seconds("h100", "--ranks-per-node", 8)
        self.assertEqual(seconds("h100"), eight)
        for ranks, cards in ((4, 4), (1, 1), (16, 16)):
            self.assertIn(f" across by {cards} card", self.simulated("--costs", "h100", "--ranks-per-node", ranks)[0])
        self.assertGreater(one, eight)
        exported = self.run_script('local zt = require "zt" print(zt.json.encode(zt.costs "h100"))')
        self.assertEqual(exported.status, 0, exported.err)
        costs = json.loads(exported.out)
        self.assertEqual(costs["hardware"]["cards_per_machine"], 8)
        mine = self.folder / "mine.json"
        mine.write_text(json.dumps(costs))
        self.assertEqual(seconds(mine), eight)
        costs["hardware"]["cards_per_machine"] = 1
        mine.write_text(json.dumps(costs))
        self.assertGreater(seconds(mine), 1.5 * eight)
        costs["hardware"].update(cards_per_machine=8, efficiency=1)
        mine.write_text(json.dumps(costs))
        self.assertLess(seconds(mine), eight)

    def test_what_is_wrong_in_a_file_of_costs(self):
        mine = self.folder / "mine.json"
        links = {"inside": {"bandwidth": 1e9}, "across": {"bandwidth": 1e9}}
        for status, hardware, text in (
                (2, {"efficiency": {"flops": 65}}, "efficiency.flops must be above 0 and at most 1, got 65"),
                (2, {"efficiency": 1.5}, "efficiency must be above 0 and at most 1, got 1.5"), (2, {"flops": {"bf16": -3}}, "flops.bf16 must be above 0"),
                (2, {"efficiency": {"flop": 1}}, "did you mean 'flops'?"), (2, {"cards_per_machine": -1}, "cards_per_machine"),
                (2, {"cards": 1}, "unknown option 'cards'"),
                (1, {"name": "x", "flops": {"fp16": 1e12}, "memory_bandwidth": 1e12, **links},
                 "the costs 'x' have no rate of bf16 GEMMs, for F blocks.0: compute in another type (fp16), measure it, or give hardware.flops.bf16")):
            mine.write_text(json.dumps({"version": 1, "hardware": hardware}))
            refused = self.plan(3, 4, 512, 1000, options=("--ranks", 16, "--costs", mine))
            self.assertEqual(refused.status, status, refused.out)
            self.assertIn(text, refused.err)
        mine.write_text('{"version": 2}')
        self.assertIn("version must lie between 1 and 1, got 2", self.plan(3, 4, 512, 1000, options=("--ranks", 16, "--costs", mine)).err)

    def test_without_the_lua_library(self):
        parts = SCRIPT.replace('require "zt"\n', 'require "zt.core"\n').replace("trainer:step{", "%s trainer:forward{")
        for hook, status, text in (("", 1, 'a dry run is completed by the Lua library, which is not loaded: write require "zt"'),
                                   ("zt.set_hook('dry_step', function(made, batch, parts) "
                                    "print('hook', made == trainer, batch.tokens:size(0), parts) os.exit(0) end)", 0,
                                    "hook\ttrue\t4\t2\n")):
            result = ztoolkit("plan", self.script(parts.replace("%s", hook)), 0, 1, 64, 10)
            self.assertEqual(result.status, status, result.err)
            self.assertIn(text, result.out + result.err)

    def test_without_an_optimizer_the_plan_is_of_what_is_called(self):
        script = self.script("""
local zt = require "zt"
local comm, nn, pipe = require "zt.comm", require "zt.nn", require "zt.pipe"
local mesh = comm.mesh{pp = -1}
local model = nn.gpt{layers = 6, hidden = 32, heads = 1, vocab = 50, seq = 8}
local trainer = zt.trainer(zt.program(model, {eval_micro_batches = 4}):apply(pipe.split{axis = mesh.pp}), {})
local tokens = zt.zeros({4, 8}, {dtype = "int64"})
if arg[1] == "infer" then trainer:infer{tokens = tokens} else trainer:evaluate{tokens = tokens, labels = tokens} end
""")
        for call, kinds, word in (("infer", {"F", "RECV", "SEND"}, "infer "), ("evaluate", {"F", "COUNT", "RECV", "SEND"}, "evaluate ")):
            planned = ztoolkit("plan", script, call, "--ranks", 2, "--compare", "gpipe,zb_v", "--json")
            self.assertEqual(planned.status, 0, planned.err)
            plan = json.loads(planned.out)
            self.assertEqual({kind for of_rank in plan["kinds"] for kind in of_rank["actions"]} - {"FREE", "NORM"}, kinds)
            seconds = [row["seconds"] for row in plan["compared"] if row["schedule"] == "gpipe"]
            self.assertEqual(seconds, [plan["simulation"]["seconds"]])  # no backward
            self.assertIn(f"\n{word}", ztoolkit("run", "--dry", script, call).out)

    def test_by_hand_the_plan_is_of_the_whole_step(self):
        step = self.plan(1, 2, 128, 100, options=("--ranks", 4))
        halves = SCRIPT.replace("trainer:step{", "trainer:forward{").replace("{4, 64}", "{2, 64}")
        forward = ztoolkit("plan", self.script(halves), 1, 2, 128, 100, "--ranks", 4)
        self.assertEqual(forward.status, 0, forward.err)
        self.assertEqual(forward.out, step.out)

    def test_what_is_no_batch(self):
        for batch in ("{tokens = 1}", "7"):
            script = self.script(SCRIPT.replace("trainer:step{tokens = tokens, labels = tokens}", f"trainer:forward({batch})"))
            result = ztoolkit("plan", script, 1, 2, 128, 100)
            self.assertEqual(result.status, 1)
            self.assertIn("script.lua:13: ", result.err)
            self.assertIn("batch", result.err)


if __name__ == "__main__":
    unittest.main()
