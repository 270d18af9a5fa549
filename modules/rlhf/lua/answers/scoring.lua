--- Runs a model over an experience, without gradients: each group of ranks computes its part of the sequences, and all ranks get
-- the numbers of all.

local core = require "zt.core"
local fail = require "zt.fail"
local outputs = require "zt.rlhf.models.outputs"
local rlhf = require "zt.rlhf"
local share = require "zt.rlhf.answers.share"

local scoring = {}

-- Returns the temperature of the head of log-probabilities of a model; nil if there is none.
local function temperature_of(model)
  local options = model.options
  if options then return options.head == "logprobs" and (options.temperature or 1) or nil end
  for _, layer in ipairs(model.description.layers) do
    if layer.kind == "lm_logprobs" then return tonumber(layer.options.temperature or "1") end
  end
  return nil
end

-- Fails if the model's vocabulary is another one than that of the engine. Vocabularies with the same tokenizer may be padded to
-- different numbers of tokens.
local function check_vocabulary(experience, options, which, call)
  local vocabulary, known = options and options.vocab, experience.tokenizer and experience.tokenizer.vocab
  if not vocabulary or vocabulary == experience.vocabulary then return end
  if not known or vocabulary < known or experience.vocabulary < known then
    fail("%s: the vocabulary of the %s has %d tokens, and that of the policy %d: they need the same tokenizer", call, which,
         vocabulary, experience.vocabulary)
  end
  if experience.token_count > 0 and experience.answers:max():item() >= vocabulary then
    fail("%s: the policy has drawn the token %d, which its tokenizer does not know and the %s, of %d tokens, does not have: give "
      .. "it as many tokens as the policy has, or train the policy's head further", call, experience.answers:max():item(), which,
         vocabulary)
  end
end

--- Fails unless the model has the vocabulary of the engine that has made the answers, and its log-probabilities, if it outputs
-- any, are those of the distribution from which they were drawn. which: the model's name; call: that of the function.
function scoring.check_model(experience, trainer, which, call)
  check_vocabulary(experience, trainer.model.options, which, call)
  local temperature = temperature_of(trainer.model)
  if temperature and temperature ~= experience.temperature then
    fail("%s: the answers were drawn at temperature %g, and the %s has lm_logprobs.temperature = %g, so its log-probabilities "
      .. "are those of another distribution: give both the same", call, experience.temperature, which, temperature)
  end
end

-- Returns rows for the sequences, and in how many calls they are computed.
local function rows_for(experience, trainer, numbers, o)
  local own = share.of(trainer, experience.world)
  local seq = o.seq or experience:longest()
  local micro_batches = trainer.program.eval_micro_batches
  local function whole(rows) return math.ceil(rows / micro_batches) * micro_batches end
  local needed = share.rows(experience, numbers, own.count, seq)
  local calls = math.ceil(needed / whole(o.rows))
  local at_once = calls > 0 and whole(math.ceil(needed / calls)) or 0 -- equal parts, so that little is padding
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
    parts[#parts + 1] = outputs.named(trainer, batch, name, o):to "cpu"
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
-- adapters =, call = the name of the function, who = what the model is}. Collective.
function scoring.of_tokens(experience, trainer, name, o)
  local numbers = experience:kept()
  local rows, calls, at_once, own = rows_for(experience, trainer, numbers, o)
  local found = output_of(trainer, rows, calls, at_once, name, o):index_select(0, rows.label_places)
  local all = core.zeros({experience.token_count}, {dtype = "float64"})
  if own.is_first then
    all:index_copy_(0, experience:token_places(share.part(numbers, own.index, own.count)), found)
  end
  all = experience:joined(all)
  check_finite(all, ("%s: the output '%s' of %s"):format(o.call, name, o.who))
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
  check_finite(all, ("%s: %s"):format(o.call, o.who))
  return all
end

return scoring
