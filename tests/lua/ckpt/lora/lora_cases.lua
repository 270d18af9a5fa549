-- Models with adapters for the tests of ckpt's functions for LoRA. The folders are those of tests/oracle/make_adapters.py.
local lu = require "luaunit"
local zt = require "zt"
local ckpt, moe, optim = require "zt.ckpt", require "zt.moe", require "zt.optim"

local cases = {FOLDER = "tests/golden/adapters/"}

-- Adapters and their bases.
cases.ADAPTERS = {llama_patterns = "llama", llama_all = "llama", llama_saved = "llama", qwen2_biased = "qwen2",
                  qwen2_tied = "qwen2", gpt2_conv1d = "gpt2", mixtral_attention = "mixtral"}

--- Returns a table with the fields of both.
function cases.with(base, more)
  local all = {}
  for _, from in ipairs{base, more or {}} do
    for key, value in pairs(from) do all[key] = value end
  end
  return all
end

--- Returns a trainer of the base with this option `lora`, and the opened base. options: {precision =, unfreeze =, pack =, cut =
-- options of the model, mesh =, passes = function(program), alone =}.
function cases.trainer(base, lora, options)
  options = options or {}
  local opened = ckpt.pretrained(cases.FOLDER .. base)
  local model = moe.gpt(cases.with(cases.with(opened.options, {lora = lora}), options.cut))
  if options.pack then model:pack(options.pack) end
  for _, name in ipairs(options.unfreeze or {}) do model:unfreeze(name) end
  local program = zt.program(model, {precision = options.precision or "fp32", mesh = options.mesh})
  if options.passes then program = options.passes(program) end
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}, separate = options.alone})
  opened:load(trainer)
  return trainer, opened
end

--- Gives B values that are not zero, equal on all ranks.
function cases.fill(trainer)
  for number, name in ipairs(trainer:parameters()) do
    if name:find "lora%.[%w_]+%.b$" then
      zt.manual_seed(number)
      trainer:set_parameter(name, 0.2 * zt.randn(trainer:describe_parameter(name).shape))
    end
  end
end

cases.TOKENS = (zt.arange(24) * 7 + 3):remainder(64):to "int64":reshape{2, 12}

function cases.logits(trainer) return trainer:infer{tokens = cases.TOKENS}.logits end

--- Returns the largest difference of two tensors.
function cases.distance(one, other) return (one:to "float64" - other:to "float64"):abs():max():item() end

--- Fails unless two trainers have equal parameters, bit by bit.
function cases.check_equal(one, other)
  for _, name in ipairs(one:parameters()) do lu.assertTrue(zt.equal(one:master(name), other:master(name)), name) end
end

--- Fails unless `action` fails with this message.
function cases.refused(message, action, ...) lu.assertErrorMsgContains(message, action, ...) end

return cases
