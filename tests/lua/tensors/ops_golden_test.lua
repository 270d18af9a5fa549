-- Compares operators called from Lua with results of PyTorch (tests/golden/ops.json, made by tests/oracle/make_ops.py).
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local bits = require "support.bits"

local golden = bits.golden "ops"

local function decode_all(entries)
  local tensors = {}
  for name, entry in pairs(entries) do tensors[name] = bits.decode(entry) end
  return tensors
end

local shared = decode_all(golden.shared)
local inputs = {}
for dtype, entries in pairs(golden.inputs) do inputs[dtype] = decode_all(entries) end

local function argument(value, dtype)
  if type(value) ~= "table" then return value end
  if value.tensor then return inputs[dtype][value.tensor] or shared[value.tensor] end
  local list = {}
  for i, item in ipairs(value) do list[i] = argument(item, dtype) end
  return list
end

local function call(case)
  local arguments = argument(case.args, case.dtype)
  if case.kwargs then table.insert(arguments, case.kwargs) end
  local results = {zt[case.op](unpack(arguments))}
  return case.is_list and results[1] or results
end

-- Maps the numbers to integers in the same order, so that neighbouring floating-point numbers differ by 1.
local function ordinals(tensor)
  local kind = bits.dtype[tensor:dtype()]
  local written = tensor:contiguous():view(kind):to("int64")
  if kind == tensor:dtype() or kind == "uint8" then return written end
  local lowest = kind == "int16" and -2 ^ 15 or kind == "int32" and -2 ^ 31 or -9223372036854775807LL - 1
  return zt.where(written:lt(0), written:neg():add(lowest), written)
end

local function compare(label, got, entry, ulps)
  lu.assertEquals(got:dtype(), entry.dtype, label)
  lu.assertEquals(got:size(), entry.shape, label)
  if got:numel() == 0 then return end
  local wanted = bits.decode(entry)
  local distance = ordinals(got):sub(ordinals(wanted)):abs():max():item()
  if distance > ulps then
    local text = "%s: %s ulps off, %d allowed\ngot    %s\nwanted %s"
    error(text:format(label, tostring(distance), ulps, tostring(got), tostring(wanted)))
  end
end

local function check(case, index)
  local label = ("case %d: %s on %s"):format(index, case.op, case.dtype)
  local is_called, results = pcall(call, case)
  if not is_called then error(label .. ": " .. results) end
  lu.assertEquals(#results, #case.results, label)
  for i, entry in ipairs(case.results) do compare(("%s, result %d"):format(label, i), results[i], entry, case.ulps) end
end

local TestGolden = {}

for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16", "int64", "bool"} do
  TestGolden["test_" .. dtype] = function()
    local checked = 0
    for i, case in ipairs(golden.cases) do
      if case.dtype == dtype then
        check(case, i)
        checked = checked + 1
      end
    end
    lu.assertTrue(checked >= 25, dtype .. ": only " .. checked .. " cases")
  end
end

function TestGolden:test_at_least_60_operators()
  local seen, count = {}, 0
  for _, case in ipairs(golden.cases) do
    if not seen[case.op] then
      seen[case.op] = true
      count = count + 1
    end
  end
  lu.assertTrue(count >= 60, count)
end

function TestGolden:test_the_comparison_can_fail()
  local entry = {dtype = "float32", shape = {2}, bits = {1065353216, -2147483648}} -- 1, -0
  compare("equal", zt.tensor {1, -0.0}, entry, 0)
  compare("zeros are 0 apart", zt.tensor {1, 0}, entry, 0)
  lu.assertErrorMsgContains("1 ulps off", compare, "next", zt.tensor {1 + 2 ^ -23, 0}, entry, 0)
  lu.assertErrorMsgContains("ulps off", compare, "sign", zt.tensor {-1, 0}, entry, 1000)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {{"TestGolden", TestGolden}})
