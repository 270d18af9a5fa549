--- rlhf.batches(experience, {trainer = actor, updates = 1}): the batches of the steps over an experience.

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local Experience = require "zt.rlhf.answers.experience"
local fail = require "zt.fail"
local rlhf = require "zt.rlhf"
local sequences = require "zt.rlhf.loss.sequences"
local scoring = require "zt.rlhf.answers.scoring"
local share = require "zt.rlhf.answers.share"

local NAME = "rlhf.batches"
local SCHEMA = {
  {"trainer", "Trainer", "the model that the batches are for: its ranks and micro-batches divide them", required = true},
  {"updates", "integer", "batches into which the sequences are divided", default = 1, at_least = 1},
  {"epochs", "integer", "how often all sequences come", default = 1, at_least = 1},
  {"seed", "integer", "shuffles the sequences", default = 1},
  {"seq", "integer", "positions of a row; default: those of the longest sequence", at_least = 1},
  {"padding", "string", "several sequences in a row, or one that is padded on this side", default = "packed",
   one_of = {"packed", "right", "left"}},
  {"ptx", "function", "function(update) that returns this rank's batch of pretraining text, of any number of rows"},
}

-- Returns the kept sequences in the order of the epoch.
local function shuffled(experience, seed, epoch)
  local numbers = experience:kept()
  local draw = core.generator(rlhf.seed_of(seed, epoch, 0))
  local order, list = core.randperm(#numbers, {generator = draw}):tolist(), {}
  for i, place in ipairs(order) do list[i] = numbers[place + 1] end
  return list
end

-- Returns numbers per token at the places of their labels, [rows, seq]; 0 elsewhere.
local function placed(of_tokens, label_places, rows, seq)
  return core.zeros({rows * seq}, {dtype = "float64"}):index_copy(0, label_places, of_tokens):view{rows, seq}
end

-- Returns the number of tokens that count in the sequence of each position.
local function lengths_of(labels, sequence)
  local of = sequences.new(sequence)
  return of:spread(of:sums(labels:ne(-100):to "int64"))
end

-- Returns a batch of text with the fields of rlhf.loss.ptx, in rows of `seq` positions.
local function text_rows(text, seq)
  if type(text) ~= "table" or not check.is("tensor", text.tokens) or not check.is("tensor", text.labels) then
    fail("%s.ptx must return a batch, {tokens =, labels =, ...}, got %s", NAME, check.type_name(text))
  end
  local size = text.tokens:size()
  if #size ~= 2 then fail("%s.ptx: tokens must be [rows, seq], got %d dims", NAME, #size) end
  for _, name in ipairs{"labels", "segments", "positions", "padding"} do
    local field = text[name]
    if field ~= nil and not (check.is("tensor", field) and table.concat(field:size(), " ") == table.concat(size, " ")) then
      local got = check.is("tensor", field) and "[" .. table.concat(field:size(), ", ") .. "]" or check.type_name(field)
      fail("%s.ptx: '%s' must be a tensor [%d, %d], as the tokens, got %s", NAME, name, size[1], size[2], got)
    end
  end
  if size[2] ~= seq then
    fail("%s.ptx: its rows have %d positions, and those of the answers %d: give %s seq = %d, or the stream another seq", NAME,
         size[2], seq, NAME, size[2])
  end
  local sequence = text.segments or text.tokens * 0
  local padding = text.padding or text.tokens * 0
  local fields = {
    tokens = text.tokens, labels = text.labels, segments = sequence, padding = padding,
    positions = text.positions or core.arange(seq):to "int64":unsqueeze(0):expand{size[1], seq}:contiguous(),
    sequence = sequence:masked_fill(padding:ne(0), -1), is_ptx = text.tokens * 0 + 1,
  }
  fields.lengths = lengths_of(fields.labels, fields.sequence)
  return fields
end

-- Returns the rows of the answers and of the text, one after the other.
local function joined(fields, text)
  local all = {}
  for name, field in pairs(text) do
    all[name] = core.cat({fields[name] or field:new_zeros(fields.tokens:size()), field})
  end
  for name, field in pairs(fields) do
    if not all[name] then all[name] = core.cat({field, field:new_zeros(text.tokens:size())}) end
  end
  return all
end

-- Returns the rows of text of an update, and the largest number of them that a rank has. Nothing and 0 without ptx. Collective.
local function text_of(world, o, update)
  if not o.ptx then return nil, 0 end
  local text = share.together(world, function() return text_rows(o.ptx(update), o.seq) end)
  local most = 0
  for _, rows in ipairs(world and world:gather_values(text.tokens:size(0)) or {text.tokens:size(0)}) do
    most = math.max(most, rows)
  end
  return text, most
end

-- Returns this rank's part of a batch of sequences. text: rows of text or nil; most_text: the most that a rank has.
local function batch_of(experience, numbers, o, text, most_text)
  local own = share.of(o.trainer, nil) -- a trainer of this rank alone learns all sequences
  local micro_batches = o.trainer.program.micro_batches
  local needed = share.rows(experience, numbers, own.count, o.seq, o.padding) + most_text
  local rows = math.max(math.ceil(needed / micro_batches), 1) * micro_batches - (text and text.tokens:size(0) or 0)
  local part = share.part(numbers, own.index, own.count)
  local options = experience:row_options(part, o.seq, o.padding)
  options.rows = rows
  local made = rlhf.make_rows(options)
  local places, fields = experience:token_places(part), made.fields
  for name, of_tokens in pairs(experience.of_tokens) do
    fields[name] = placed(of_tokens:index_select(0, places), made.label_places, rows, o.seq)
  end
  return text and joined(fields, text) or fields
end

-- Fails if the KL divergence from the reference is in the rewards and in a loss, too.
local function check_kl(experience, model)
  if not experience.has_kl_in_rewards then return end
  for _, layer in ipairs(model.description.layers) do
    if layer.kind == "loss" and layer.options["options.options.kl.coefficient"] then
      fail("%s: rlhf.advantages{kl = ...} has taken the KL divergence out of the rewards, and the loss '%s' has it, too, so it "
        .. "would count twice: leave one of them out", NAME, layer.name)
    end
  end
end

--- Iterates over the batches: this rank's part of each. All sequences come once per epoch, in an order that the seed decides, cut
-- into `updates` batches; which sequences a batch has does not depend on ranks. Their numbers of tokens and rows may differ, and
-- rows of padding fill, so that all ranks have equally many. Fields: those of rlhf.make_rows, and the numbers of the
-- experience's tokens at the places of their labels: old_logprobs, advantages, ... The call and each batch are collective over
-- the ranks of the experience.
local function batches(experience, value)
  if not class.is(experience, Experience) then
    fail("%s takes what rlhf.rollout returns as its first argument, got %s", NAME, check.type_name(experience))
  end
  local o = share.options(experience.world, NAME, SCHEMA, value)
  scoring.check_model(experience, o.trainer, "trainer's model", NAME)
  check_kl(experience, o.trainer.model)
  o.seq = o.seq or experience:longest()
  local kept = #experience:kept()
  if kept == 0 then fail("%s: no answer is left to learn from: all were dropped or are empty", NAME) end
  if kept < o.updates then
    fail("%s: %d sequences cannot be divided into %d updates: give fewer updates or more answers", NAME, kept, o.updates)
  end
  local next_update, numbers = 0, nil
  return function()
    local epoch, update = math.floor(next_update / o.updates), next_update % o.updates
    if epoch == o.epochs then return nil end
    if update == 0 then numbers = shuffled(experience, o.seed, epoch) end
    next_update = next_update + 1
    local text, most_text = text_of(experience.world, o, next_update - 1)
    return share.together(experience.world, function()
      return batch_of(experience, share.part(numbers, update, o.updates), o, text, most_text)
    end)
  end
end

return batches
