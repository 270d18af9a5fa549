-- Tests the warnings about ranks that train separate models, or do the same work, because a pass was forgotten.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local run = require "support.command" "run --threads 2"

local HEAD = [[
local zt = require "zt"
local comm, nn, optim, zero, pipe = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero", require "zt.pipe"
local model = nn.sequential{{"embedding", nn.embedding{vocab = 11, hidden = 8}}, {"head", nn.lm_loss{vocab = 11, hidden = 8}},
                            seed = 1}
local program, options = zt.program(model), {optimizer = optim.adamw{lr = 0.1}}
]]

-- Runs a script on two ranks. Returns what it prints.
local function output_of(script)
  local path = os.tmpname()
  zt.write_file(path, HEAD .. script)
  local output, status = run(path)
  os.remove(path)
  lu.assertEquals(status, 0, output)
  return output
end

local TestIdleRanks = {}

function TestIdleRanks:test_a_forgotten_pass_is_said_once()
  local output = output_of "zt.trainer(program, options)"
  lu.assertStrContains(output, "[warn rank 0] 2 ranks train 2 separate models, because no pass of the program joins them: apply")
  lu.assertEquals(select(2, output:gsub("%[warn", "")), 1)
end

function TestIdleRanks:test_an_axis_without_a_use_is_named()
  local output = output_of [[
    local mesh = comm.mesh{pp = 1, dp = 2}
    zt.trainer(program:apply(pipe.split{axis = mesh.pp}), options)
  ]]
  lu.assertStrContains(output, "nothing in the program uses the mesh axis 'dp'")
end

-- COUNT and NORM run over all axes, which is no use of them.
function TestIdleRanks:test_a_forgotten_pipeline_is_named()
  local output = output_of [[
    local mesh = comm.mesh{pp = 2, dp = 1}
    zt.trainer(program:apply(zero.shard{axis = mesh.dp}), options)
  ]]
  lu.assertStrContains(output, "nothing in the program uses the mesh axis 'pp'")
end

function TestIdleRanks:test_ranks_with_a_use_are_not_warned_of()
  lu.assertNotStrContains(output_of [[
    local mesh = comm.mesh{dp = 2}
    zt.trainer(program:apply(zero.shard{axis = mesh.dp}), options)
  ]], "[warn")
end

function TestIdleRanks:test_equal_samples_are_said_once()
  local steps = [[
    local mesh = comm.mesh{dp = 2}
    local trainer = zt.trainer(program:apply(zero.shard{axis = mesh.dp}), options)
    local tokens = zt.arange(8):add(DIFFERENCE):view{2, 4}:to "int64"
    for _ = 1, 3 do trainer:step{tokens = tokens, labels = tokens} end
  ]]
  local output = output_of((steps:gsub("DIFFERENCE", "0")))
  lu.assertStrContains(output, "[warn rank 0] the ranks 0 and 1 of 'dp' train on the same samples: data-parallel ranks should")
  lu.assertEquals(select(2, output:gsub("%[warn", "")), 1)
  lu.assertNotStrContains(output_of((steps:gsub("DIFFERENCE", "zt.world.rank"))), "[warn")
end

function TestIdleRanks:test_the_script_may_say_that_it_is_meant()
  lu.assertNotStrContains(output_of "options.separate = true; zt.trainer(program, options)", "[warn")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestIdleRanks", TestIdleRanks}})
