-- Tests that tostring of a tensor equals PyTorch's text (tests/golden/ops_print.json, made by tests/oracle/make_ops.py).
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local bits = require "support.bits"

local TestPrint = {}

function TestPrint:test_as_pytorch()
  local cases = bits.golden "ops_print"
  lu.assertTrue(#cases > 30)
  for _, case in ipairs(cases) do lu.assertEquals(tostring(bits.decode(case)), case.text) end
end

function TestPrint:test_autograd_and_device()
  local w = zt.tensor({1, 2}, {requires_grad = true})
  lu.assertEquals(tostring(w), "tensor([1., 2.], requires_grad=True)")
  lu.assertEquals(tostring(w + w), "tensor([2., 4.], grad_fn=<AddBackward0>)")
  lu.assertEquals(tostring(zt.zeros(2, 3, {device = "meta"})), "tensor(..., device='meta', size=(2, 3))")
  local integers = zt.zeros(3, {device = "meta", dtype = "int64"})
  lu.assertEquals(tostring(integers), "tensor(..., device='meta', size=(3,), dtype=torch.int64)")
end

function TestPrint:test_views()
  lu.assertEquals(tostring(zt.tensor {{1, 2}, {3, 4}}:t()), "tensor([[1., 3.],\n        [2., 4.]])")
  lu.assertEquals(tostring(zt.tensor {1, 2, 3, 4}[{{0, 4, 2}}]), "tensor([1., 3.])")
end

function TestPrint:test_other_layouts_have_a_text()
  lu.assertStrContains(tostring(zt.eye(2):to_sparse()), "Sparse")
  local complex = zt.complex(zt.tensor {1}, zt.tensor {2})
  lu.assertEquals(tostring(complex), "complex64 as (real, imaginary): tensor([[1., 2.]])")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {{"TestPrint", TestPrint}})
