--- Runs a model over an experience, without gradients: each group of ranks computes its part of the sequences, and all ranks get
-- the numbers of all.

local core = require "zt.core"
local fail = require "zt.fail"
local outputs = require "zt.rlhf.outputs"
local rlhf = require "zt.rlhf"
local share = require "zt.rlhf.share"

local scoring = {}

-- Returns rows for the sequences, and in how many calls they are computed.
local function rows_for(experience, trainer, numbers, o)
  local own = share.of(trainer, experience.world)
  local seq = o.seq or experience:longest()
  local micro_batches = trainer.program.eval_micro_batches
  local at_once = math.ceil(o.rows / micro_batches) * micro_batches
  local calls = math.ceil(share.rows(experience, numbers, own.count, seq) / at_once)
  local options = experience:row_options(share.part(numbers, own.index, own.count), seq)
  options.rows = calls * at_once
  return rlhf.make_rows(options), calls, at_once, own
end

-- Returns an output of the trainer's model at all positions, float64 [rows * seq].
local function output_of(trainer, rows, calls, at_once, name, o)
  local parts = {}
  for call = 0, calls - 1 do
    local batch = {}
    for key, field in pairs(rows.fields) do batch[key] = field:narrow(0, call * at_once, at_once) end
    parts[#parts + 1] = outputs.named(trainer, batch, name, o.adapters, o.call):to "cpu"
  end
  if #parts == 0 then return core.zeros({0}, {dtype = "float64"}) end
  return core.cat(parts):flatten()
end

local function check_finite(found, what)
  if found:isfinite():all():item() then return end
  fail("%s gives %d numbers that are not finite: the model is damaged, or has diverged", what,
       found:numel() - found:isfinite():sum():item())
end

--- Returns the output `name` of the trainer's model for the tokens of all answers, [tokens]. o: {rows = rows at once, seq =,
-- adapters =, call = the name of the function}. Collective.
function scoring.of_tokens(experience, trainer, name, o)
  local numbers = experience:kept()
  local rows, calls, at_once, own = rows_for(experience, trainer, numbers, o)
  local found = output_of(trainer, rows, calls, at_once, name, o):index_select(0, rows.label_places)
  local all = core.zeros({experience.token_count}, {dtype = "float64"})
  if own.is_first then
    all:index_copy_(0, experience:token_places(share.part(numbers, own.index, own.count)), found)
  end
  all = experience:joined(all)
  check_finite(all, ("%s: the output '%s'"):format(o.call, name))
  return all
end

--- Returns the output `values` at the last token of each sequence, [count]. Collective.
function scoring.of_sequences(experience, trainer, o)
  local numbers = {}
  for i = 1, experience.count do numbers[i] = i - 1 end
  local rows, calls, at_once, own = rows_for(experience, trainer, numbers, o)
  local found = output_of(trainer, rows, calls, at_once, "values", o):index_select(0, rows.last_places)
  local all = core.zeros({experience.count}, {dtype = "float64"})
  if own.is_first then
    local part = share.part(numbers, own.index, own.count)
    if #part > 0 then all:narrow(0, part[1], #part):copy_(found) end
  end
  all = experience:joined(all)
  check_finite(all, o.call .. ": the reward model")
  return all
end

return scoring
