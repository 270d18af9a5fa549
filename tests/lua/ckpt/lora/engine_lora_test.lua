-- Tests engines of a trainer whose model has adapters, with and without them.
local lu = require "luaunit"
local zt = require "zt"
local infer, nn = require "zt.infer", require "zt.nn"

local PROMPT = {}
for i = 1, 40 do PROMPT[i] = i end

-- Returns a trainer whose adapters change its answers.
local function trainer_of()
  local options = {layers = 2, hidden = 32, heads = 4, vocab = 64, seq = 64, seed = 1, std = 0.3, lora = {rank = 3}}
  local trainer = zt.trainer(zt.program(nn.gpt(options)))
  for number, name in ipairs(trainer:parameters()) do
    if name:find "lora" then
      trainer:set_parameter(name, zt.randn(trainer:describe_parameter(name).shape, {generator = zt.generator(number)}))
    end
  end
  return trainer
end

local function engine_of(trainer) return infer.engine{trainer = trainer, cache = {memory = 2 ^ 24}} end

local function answer(engine)
  return engine:generate{{prompt = PROMPT, max_tokens = 8, temperature = 0, ignore_eos = true}}[1].tokens
end

local TestEngineLora = {}

-- Keys and values of one kind are of no use for the other.
function TestEngineLora.test_keys_and_values_are_those_of_the_phase()
  local trainer = trainer_of()
  local function without(action) return trainer:with_adapters(false, action) end
  local adapted = answer(engine_of(trainer))
  local base = without(function() return answer(engine_of(trainer)) end)
  lu.assertNotEquals(adapted, base)
  local engine = engine_of(trainer)
  for _ = 1, 2 do
    lu.assertEquals(answer(engine), adapted)
    lu.assertEquals(without(function() return answer(engine) end), base)
  end
end

function TestEngineLora.test_answers_end_with_the_phase()
  local trainer = trainer_of()
  local engine = engine_of(trainer)
  engine:submit{prompt = PROMPT, max_tokens = 8, temperature = 0, ignore_eos = true}
  engine:step()
  local answers = trainer:with_adapters(false, function()
    local found = {}
    while true do
      local step = engine:step()
      if not step then return found end
      for _, each in ipairs(step.answers) do found[#found + 1] = each end
    end
  end)
  lu.assertEquals(#answers, 1)
  lu.assertEquals(answers[1].finish_reason, "error")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestEngineLora", TestEngineLora}})
