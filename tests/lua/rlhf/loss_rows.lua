--- Rows of sequences for tests of losses: the same sequences packed, or padded on the right or on the left, for a model whose
-- outputs are tables.
local zt = require "zt"
local nn = require "zt.nn"
local safetensors = require "support.safetensors"

local loss_rows = {SEQ = 31, LONGEST = 6, IGNORED = -100}

local golden = safetensors.read "tests/golden/rlhf.safetensors"
loss_rows.golden = golden
local prompts, answers = golden.prompts:tolist(), golden.answers:tolist()
local ptx_lengths = golden.ptx_lengths:tolist()
local tokens = golden["field/tokens"]:tolist()

-- Fields of floating-point numbers per token of an answer.
local OF_ANSWERS = {"old_logprobs", "ref_logprobs", "advantages", "correction", "returns", "old_values", "teacher_logits",
                    "teacher_tokens", "teacher_logprobs", "warm_teacher_logprobs"}

-- A sequence: its number among those of its kind, its sizes, and whether it is pretraining text.
local function sequence_of(number, is_ptx)
  if is_ptx then return {number = number, prompt = 1, answer = ptx_lengths[number], is_ptx = true} end
  return {number = number, prompt = prompts[number], answer = answers[number]}
end

local function size_of(sequences)
  local size = 0
  for _, each in ipairs(sequences) do size = size + each.prompt + each.answer end
  return size
end

-- By layout: a list of rows, each a list of units that stay together, a unit being one sequence or a pair.
local function rows_of(layout, units)
  local rows = {}
  for _, unit in ipairs(units) do
    local last = rows[#rows]
    local fits = last and layout == "packed" and size_of(last) + size_of(unit) <= loss_rows.SEQ
    if not fits then rows[#rows + 1], last = {}, nil end
    for _, each in ipairs(unit) do table.insert(last or rows[#rows], each) end
  end
  return rows
end

local function units_of(in_pairs, with_ptx)
  local units = {}
  for number = 1, #answers, in_pairs and 2 or 1 do
    units[#units + 1] = in_pairs and {sequence_of(number), sequence_of(number + 1)} or {sequence_of(number)}
  end
  for number = 1, with_ptx and #ptx_lengths or 0 do units[#units + 1] = {sequence_of(number, true)} end
  return units
end

-- Fills the positions of a sequence from `at` in a row of lists.
local function fill(row, at, each, n)
  for i = 0, each.prompt + each.answer - 1 do
    local place, t = at + i, i - each.prompt + 1 -- t: which token of the answer the label is
    row.sequence[place], row.is_ptx[place] = n, each.is_ptx and 1 or 0
    row.lengths[place] = each.answer
    row.tokens[place] = each.is_ptx and 1 or tokens[each.number][i + 1]
    row.value_at[place] = each.is_ptx and -1 or (each.number - 1) * 10 + i
    local counts = t >= 0 and t < each.answer
    row.labels[place] = counts and 1 or loss_rows.IGNORED
    if counts then row[each.is_ptx and "ptx_at" or "answer_at"][place] = (each.number - 1) * loss_rows.LONGEST + t end
  end
end

local DEFAULTS = {sequence = -1, is_ptx = 0, lengths = 0, tokens = 0, value_at = -1, labels = loss_rows.IGNORED, ptx_at = -1,
                  answer_at = -1}

local function new_row()
  local row = {}
  for name, default in pairs(DEFAULTS) do
    row[name] = {}
    for place = 1, loss_rows.SEQ do row[name][place] = default end
  end
  return row
end

-- Returns rows of a table [n, width, ...] at the indices `at` [rows, seq], and nan where these are negative.
local function taken(values, at)
  local flat = values:flatten(0, 1)
  local found = flat:index_select(0, at:clamp(0):flatten())
  local size = at:size()
  for dim = 2, flat:dim() do size[#size + 1] = flat:size(dim - 1) end
  local mask = at:lt(0)
  for _ = 3, #size do mask = mask:unsqueeze(-1) end
  if not found:is_floating_point() then return found:view(size) end
  return found:view(size):masked_fill(mask, 0 / 0)
end

--- Returns a batch. layout: "packed", or one sequence, or pair, per row with padding on the "right" or on the "left". Fields of
-- answers are nan where no token counts.
function loss_rows.batch(layout, in_pairs, with_ptx)
  local columns = {}
  for name in pairs(DEFAULTS) do columns[name] = {} end
  local rows = rows_of(layout, units_of(in_pairs, with_ptx))
  for r, sequences in ipairs(rows) do
    local row = new_row()
    local at = layout == "left" and loss_rows.SEQ - size_of(sequences) + 1 or 1
    for n, each in ipairs(sequences) do
      fill(row, at, each, n - 1)
      at = at + each.prompt + each.answer
    end
    for name, list in pairs(row) do columns[name][r] = list end
  end
  local batch = {}
  for name, lists in pairs(columns) do batch[name] = zt.tensor(lists, {dtype = "int64"}) end
  for _, name in ipairs(OF_ANSWERS) do batch[name] = taken(golden["field/" .. name], batch.answer_at) end
  batch.kl = zt.ones({#rows}, {dtype = "float64"}) * golden.kl:item()
  if not with_ptx then batch.is_ptx = nil end
  return batch
end

-- Returns entries of a flat table [n, ...] at the indices `at` [rows, seq]; 0 where these are negative.
local function looked_up(flat, at)
  local found = flat:index_select(0, at:clamp(0):flatten())
  local size = at:size()
  for dim = 2, flat:dim() do size[#size + 1] = flat:size(dim - 1) end
  local mask = at:lt(0)
  for _ = 3, #size do mask = mask:unsqueeze(-1) end
  return found:view(size):masked_fill(mask, 0)
end

-- By output: the table and the field with the indices in it.
local TABLES = {logprobs = "answer_at", entropy = "answer_at", values = "value_at", logits = "answer_at"}

--- Returns a layer whose outputs are the golden file's tables at the batch's positions. names: those of the outputs.
function loss_rows.layer(names)
  local params, outputs = {}, {}
  for _, name in ipairs(names) do
    params[name] = golden["table/" .. name]:flatten(0, 1):clone()
    if name == "logprobs" then params.ptx = golden["table/ptx"]:flatten(0, 1):clone() end
    outputs[#outputs + 1] = {name = name}
  end
  return nn.layer{
    params = params, io = {inputs = {}, outputs = outputs}, tokens = "separate",
    forward = function(self, ctx)
      local results = {}
      for i, name in ipairs(names) do
        results[i] = looked_up(self[name], ctx:batch(TABLES[name]))
        if name == "logprobs" then results[i] = results[i] + looked_up(self.ptx, ctx:batch "ptx_at") end
      end
      return unpack(results)
    end,
  }
end

--- Returns rows of a batch from `first` on, as many as `count`; missing ones are padding.
function loss_rows.part(batch, first, count)
  local part = {}
  for name, field in pairs(batch) do
    local there = math.max(math.min(count, field:size(0) - first), 0)
    local rows = field:narrow(0, math.min(first, field:size(0)), there)
    local size = field:size()
    size[1] = count - there
    local default = DEFAULTS[name] or (name == "kl" and golden.kl:item()) or 0
    part[name] = zt.cat({rows, field:new_full(size, default)})
  end
  return part
end

return loss_rows
