"""What a run says that lacks memory: before its buffers are made, while they are made, and in a step."""

import re
import subprocess
import unittest

from host import SANITIZED, ZTOOLKIT, HostTest, environment, ztoolkit

# At 8 layers, 2 ranks with 27 M parameters each need 830 MiB at stage 0 and half of that at stage 3.
SCRIPT = """
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local layers, samples, stage, is_caught = tonumber(arg[1]), tonumber(arg[2]), tonumber(arg[3]), arg[4] == "caught"
local mesh = comm.mesh{dp = -1}
local file = assert(io.open "/proc/self/status")
print("reserved", file:read("*a"):match "VmSize:%s+(%d+)")
file:close()
local model = nn.gpt{layers = layers, hidden = 512, heads = 8, vocab = 4096, seq = 128, seed = 1}
local program = zt.program(model, {micro_batches = 1}):apply(zero.shard{stage = stage, axis = mesh.dp})
local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-3}})
local function batch(count)
  local tokens = zt.arange(count * 128):remainder(4096):to("int64"):view({count, 128})
  return {tokens = tokens, labels = tokens}
end
if arg[4] == "by_hand" then trainer:forward(batch(samples)) end
if is_caught then
  local is_done, message = pcall(trainer.step, trainer, batch(samples))
  print(is_done, (tostring(message):gsub("\\n.*", "")))
  samples = 1
end
print("loss", trainer:step(batch(samples)).loss)
"""
KB = 1024

# Each large tensor is larger than the hole that the one before leaves between tensors that stay.
HOLES = """
local zt = require "zt"
local function status(name)
  for line in io.lines "/proc/self/status" do
    local kilobytes = line:match("^" .. name .. ":%s*(%d+)")
    if kilobytes then return tonumber(kilobytes) end
  end
end
local begin, stay = status "VmRSS", {}
for i = 1, 60 do
  local large = zt.zeros{4 * 2 ^ 20 + i * 16384}
  stay[i] = zt.zeros{65536}
  large = nil
  collectgarbage()
end
print("more", status "VmHWM" - begin)
"""


@unittest.skipIf(SANITIZED, "a sanitizer reserves all addresses")
class Memory(HostTest):
    def run_limited(self, *arguments, limit=None):
        """Runs the script on two threads that may reserve `limit` KiB of addresses."""
        words = " ".join(str(word) for word in ("exec", ZTOOLKIT, "run", "--threads", 2, self.script(SCRIPT), *arguments))
        command = words if limit is None else f"ulimit -v {limit}; {words}"
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment({"OMP_NUM_THREADS": 1}),
                              check=False, timeout=100)

    def reserved(self):
        """Returns the KiB of addresses that a run has reserved before it has a model."""
        return int(re.search(r"reserved\s+(\d+)", self.run_limited(1, 1, 0).stdout)[1])

    def test_the_advice_helps(self):
        limit = self.reserved() + 750 * KB
        refused = self.run_limited(8, 1, 0, limit=limit)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertEqual(refused.stderr.count("the buffers of the 2 ranks on this machine need 8"), 1, refused.stderr)
        for text in (r"this process may use 7\d\d MiB more \(ulimit -v\)", r"This rank's buffers are: parameters \d+ MiB, gradients \d+ MiB, "
                     r"optimizer \d+ MiB\. To need less, shard them by zero\.shard\{stage = 1\}, or a higher stage; or use more ranks; or "):
            self.assertRegex(refused.stderr, text)
        self.assertNotIn("loss", refused.stdout)
        helped = self.run_limited(8, 1, 3, limit=limit)
        self.assertEqual(helped.returncode, 0, helped.stderr)
        self.assertIn("loss", helped.stdout)

    def test_in_a_step(self):
        limit = self.reserved() + 500 * KB
        failed = self.run_limited(2, 64, 0, limit=limit)
        self.assertEqual(failed.returncode, 1, failed.stdout)
        self.assertRegex(failed.stderr, r"layer 'blocks\.\d' \(block\): with the inputs float32\[64, 128, 512\] on cpu: there is no memory "
                         r"for [\d.]+ MiB; .* more \(ulimit -v\)\. This rank's buffers are: parameters ")
        self.assertNotIn("does not have a device", failed.stderr)
        by_hand = self.run_limited(2, 64, 0, "by_hand", limit=limit)
        self.assertRegex(by_hand.stderr, r"layer 'blocks\.\d' .*This rank's buffers are: .*nothing was changed")
        caught = self.run_limited(2, 64, 0, "caught", limit=limit)
        self.assertRegex(caught.stdout, r"false\t.*there is no memory for")
        # A rank that lacks memory also to join the others in the rest of the step has a trainer that refuses to go on.
        self.assertTrue("loss" in caught.stdout or "this trainer cannot be used any more" in caught.stderr, caught.stdout + caught.stderr)

    def test_holes_between_tensors_take_no_memory(self):
        run = ztoolkit("run", self.script(HOLES))
        more, live = int(re.search(r"more\s+(\d+)", run.out)[1]), 60 * 256 + (4 * KB * KB + 60 * 16384) * 4 // KB
        self.assertLess(more, live * 1.05 + 8 * KB, run.out + run.err)

    def test_more_than_the_machine_has(self):
        refused = self.run_limited(2000, 1, 0)
        self.assertEqual(refused.returncode, 1, refused.stdout)
        self.assertRegex(refused.stderr, r"the buffers of the 2 ranks on this machine need \d+ GiB, without activations, and .* free on this machine")


if __name__ == "__main__":
    unittest.main()
