"""`ztoolkit plan` of scripts whose layers are written in Lua."""

import json
import unittest

from host import HostTest, ztoolkit

# The layer of the script is `FORWARD`, on h [2, 8, 4] with the parameters w [4] and table [6, 4].
SCRIPT = """
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"
local params = {w = zt.ones{4}, table = zt.ones{6, 4}}
local layer = nn.layer{params = params, forward = function(self, h, ctx) FORWARD end}
local model = nn.sequential{nn.embedding{vocab = 6, hidden = 4}, layer, nn.lm_loss{vocab = 6, hidden = 4}}
local tokens = zt.zeros({2, 8}, {dtype = "int64"})
zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 1}}):step{tokens = tokens, labels = tokens}
"""

# Operators for which LibTorch's C++ has no kernel for tensors without memory, and which it has.
FORWARDS = (
    "return zt.where(h:gt(0), h, self.w * h)",
    "return zt.layer_norm(h, {4}, self.w)",
    "return h + self.table:index_select(0, ctx:batch('tokens'):flatten()):view(h:shape())",
    "return h + zt.embedding(self.table, ctx:batch('tokens'))",
    "local sorted = h:sort(-1) return sorted * self.w",
    "return h:cumsum(1):masked_fill(h:lt(0), 0) * self.w",
    "return zt.conv1d(h:transpose(1, 2), self.w:diag():unsqueeze(-1)):transpose(1, 2):contiguous()",
    "local value = h:topk(2, -1) return h + value:mean{-1}:unsqueeze(-1) * self.w",
)


class PlanOfLayers(HostTest):
    def plan(self, forward):
        return ztoolkit("plan", self.script(SCRIPT.replace("FORWARD", forward)), "--json")

    def test_operators_without_a_kernel_for_tensors_without_memory(self):
        for forward in FORWARDS:
            with self.subTest(forward=forward):
                result = self.plan(forward)
                self.assertEqual(result.status, 0, result.err)
                self.assertGreater(json.loads(result.out)["kinds"][0]["memory"]["activations"], 0)

    def test_a_result_whose_shape_depends_on_values(self):
        result = self.plan("return h * self.w + h:bincount():sum()")
        self.assertEqual(result.status, 1)
        self.assertIn("bincount", result.err)
        self.assertIn("layer '1' cannot be planned", result.err)


if __name__ == "__main__":
    unittest.main()
