-- The small GPT that the tests of engines train, on batches that depend on step and rank. The numbers of samples, tokens and
-- ranks are powers of two.
local lu = require "luaunit"
local zt = require "zt"
local nn = require "zt.nn"

local small = {vocab = 11, seq = 4, micro = 2, parts = 2, rows = 4} -- rows: samples per rank, in `parts` micro-batches

function small.gpt() return nn.gpt{layers = 2, hidden = 8, heads = 2, vocab = small.vocab, seq = small.seq, seed = 3} end

local function configuration(more)
  local config = {
    train_micro_batch_size_per_gpu = small.micro, gradient_accumulation_steps = small.parts,
    optimizer = {type = "SGD", params = {lr = 0.5}}, log_level = "error",
  }
  for key, value in pairs(more or {}) do config[key] = value end
  return config
end

function small.engine_of(more, options)
  local all = {model = small.gpt(), config = configuration(more)}
  for key, value in pairs(options or {}) do all[key] = value end
  return zt.initialize(all)
end

-- Returns this rank's part of a step's global batch, or `count` of its samples from `first` on.
function small.batch(step, first, count)
  local rows, from = count or small.rows, step + (zt.world.rank * small.rows + (first or 0)) * small.seq
  local tokens = (zt.arange(rows * small.seq) + from):remainder(small.vocab):view({rows, small.seq}):to "int64"
  return {tokens = tokens, labels = (tokens * 3 + step):remainder(small.vocab)}
end

function small.micro_batch(step, part) return small.batch(step, part * small.micro, small.micro) end

-- Runs a step by forward, backward and step. Returns the losses of this rank's micro-batches.
function small.three_calls(engine, step)
  local losses = {}
  for part = 0, small.parts - 1 do
    losses[part + 1] = engine(small.micro_batch(step, part))
    engine:backward(losses[part + 1])
    engine:step()
  end
  return losses
end

function small.weights(engine)
  local out = {}
  for index, name in ipairs(engine.trainer:parameters()) do out[index] = engine.trainer:parameter(name):flatten() end
  return zt.cat(out, 0)
end

function small.assert_same(a, b) lu.assertTrue(small.weights(a):equal(small.weights(b))) end

return small
