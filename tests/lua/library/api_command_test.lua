-- Tests ztoolkit api NAME, which prints entries of docs/lua.md.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local run = require "support.command" "api"

local TestApi = {}

function TestApi:test_an_entry()
  for _, name in ipairs{"zero.shard", "zt.zero.shard", "zt.zero.shard()", "shard"} do
    local output, status = run(name)
    lu.assertEquals(status, 0, output)
    lu.assertStrContains(output, "zt.zero.shard{axis, [stage = 0], ...}\n  Returns a pass that makes the ranks of an axis")
    lu.assertStrContains(output, "\n  example: zero.shard{stage = 2, axis = mesh.dp}\n")
  end
end

function TestApi:test_all_entries_with_this_last_part()
  local output = run "step"
  for _, code in ipairs{"Trainer:step(batch", "LayerContext.step", "TokenStream.step"} do lu.assertStrContains(output, code) end
  output = run "Trainer.step"
  lu.assertStrContains(output, "Trainer:step(batch")
  lu.assertNotStrContains(output, "TokenStream.step")
end

function TestApi:test_what_a_type_or_a_record_has()
  lu.assertStrContains(run "Simulation", "Simulation:write_trace(")
  local output = run "ctx"
  for _, field in ipairs{"ctx.step\n  the 0-based step", "ctx.unit\n", "ctx.out\n"} do lu.assertStrContains(output, field) end
  lu.assertStrContains(run "ctx.unit.master", "the part that this rank owns")
  lu.assertStrContains(run "ctx.grad_divisor", "the factor by which gradient buffers are larger")
end

function TestApi:test_unknown_names()
  local output, status = run("zero.shard", "zero.sharrd")
  lu.assertEquals(status, 1)
  lu.assertStrContains(output, "Returns a pass that makes the ranks")
  lu.assertStrContains(output, "api: the Lua API has no 'zero.sharrd': did you mean 'zero.shard'?")
  lu.assertStrContains(run "matmul", "it is an operator of LibTorch, zt.matmul(...) or x:matmul(...)")
  lu.assertEquals(select(2, run "--chek"), 2)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestApi", TestApi}})
