-- A small GPT whose second block has experts, for tests on one rank and on several.
local zt = require "zt"
local comm, moe, nn = require "zt.comm", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"

local small = {hidden = 16, vocab = 29, seq = 8, samples = 4, experts = 4}
small.mesh = comm.mesh{dp = 1, ep = zt.world.size}

-- Returns the model. `options`: of moe.layers. `before`: layers in front of the router.
function small.model(options, before)
  return nn.gpt{layers = 2, hidden = small.hidden, heads = 2, vocab = small.vocab, seq = small.seq, seed = 1, mlp = function(i)
    if i == 0 then return nil end
    local given = {experts = small.experts, hidden = small.hidden, ffn = 24, axis = small.mesh.ep}
    for key, value in pairs(options or {}) do given[key] = value end
    local layers = before and {before} or {}
    for _, layer in ipairs(moe.layers(given)) do layers[#layers + 1] = layer end
    return layers
  end}
end

-- Returns the trainer of a model. `more`: {program =, passes =, optimizer =, trainer =}.
function small.trainer(model, more)
  more = more or {}
  local program = zt.program(model, more.program or {precision = "fp64"})
  for _, pass in ipairs(more.passes or {}) do program = program:apply(pass) end
  local options = {optimizer = more.optimizer or optim.adamw{lr = 1e-2}}
  for key, value in pairs(more.trainer or {}) do options[key] = value end
  return zt.trainer(program:apply(zero.shard{stage = 2, axis = small.mesh:join{"dp", "ep"}}), options)
end

-- Returns this rank's part of a global batch.
function small.batch(step, more)
  local part = small.samples / zt.world.size
  local function own(field) return field:narrow(0, zt.world.rank * part, part):contiguous() end
  local tokens = zt.arange(small.samples * small.seq):add(3 * (step or 0)):remainder(small.vocab)
    :view({small.samples, small.seq}):to "int64"
  local batch = {tokens = own(tokens), labels = own(tokens:add(1):remainder(small.vocab))}
  for name, field in pairs(more or {}) do batch[name] = own(field) end
  return batch
end

return small
