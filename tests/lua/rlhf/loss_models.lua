--- Losses of zt.rlhf on small language models, and batches for them, for tests beside one rank.
local zt = require "zt"
local nn, rlhf = require "zt.nn", require "zt.rlhf"

local loss_models = {ROWS = 12, VOCAB = 13}

local SEQUENCES, SEQ = 10, 28
local loss = rlhf.loss

--- By name: the losses, the head of the model, and what rows they need. is_whole: the loss of a sequence is no sum over
--- tokens. That is refused where ranks have other tokens of it, with the message `refused`.
loss_models.CASES = {
  {name = "ppo", loss.ppo{dual_clip = 1.1}},
  {name = "ppo entropy", loss.ppo{entropy = 0.1, mean = "sequence"}, model = {entropy = true}},
  {name = "ppo ptx", loss.ppo{}, loss.ptx{coefficient = 0.7}, with_ptx = true},
  {name = "grpo sequence", loss.grpo{kl = {corrected = true}, mean = "sequence"}, model = {temperature = 0.7}},
  {name = "grpo constant", loss.grpo{kl = {estimator = "k2", coefficient = 0.5}, mean = "constant", max_tokens = 4}},
  {name = "gspo", loss.grpo{level = "sequence", clip = {low = 0.05, high = 0.1}, mean = "sequence"}, is_whole = true},
  {name = "gspo token", loss.grpo{level = "sequence", clip = {low = 0.05, high = 0.1}}, is_whole = true,
   refused = "needs all tokens of a sample, and no rank has a whole sample"},
  {name = "value", loss.value{}, head = "value"},
  {name = "value sequence", loss.value{clip = 0, mean = "sequence"}, head = "value"},
  {name = "reward", loss.reward{margin = 0.2, center = 0.01}, head = "value", is_whole = true},
  {name = "reward divergence", loss.reward{at = "divergence"}, head = "value", is_whole = true},
  {name = "dpo", loss.dpo{label_smoothing = 0.1, sft = 0.3}, is_whole = true},
  {name = "dpo ipo", loss.dpo{kind = "ipo"}, is_whole = true},
  {name = "dpo kto", loss.dpo{kind = "kto"}, is_whole = true},
  {name = "distil", loss.distil{kind = "jsd"}, head = "lm", model = {loss = false}},
  {name = "distil top", loss.distil{kind = "reverse", top = 3, mean = "sequence"}, head = "lm", model = {loss = false}},
}

--- Returns the model of a case. more: options of nn.gpt.
function loss_models.model(case, more)
  local all = {layers = 2, family = "llama", hidden = 8, heads = 2, vocab = loss_models.VOCAB, seq = 40, seed = 3, std = 0.4,
               head = case.head or "logprobs"}
  for _, given in ipairs{case.model or {}, more or {}} do
    for key, value in pairs(given) do all[key] = value end
  end
  local model = nn.gpt(all)
  for i, layer in ipairs(case) do model = model:append(layer, "loss" .. i) end
  return model
end

local function int64(list) return zt.tensor(list, {dtype = "int64"}) end

-- Returns the options of rlhf.make_rows for sequences of random tokens, whose lengths depend on the step.
local function sequences(step)
  local prompts, answers, draw = {0}, {0}, zt.generator(step)
  for i = 1, SEQUENCES do
    prompts[i + 1] = prompts[i] + (i * 5 + step) % 3 + 1
    answers[i + 1] = answers[i] + (i * 3 + step) % 4 + 1
  end
  local function tokens(count) return zt.randint(loss_models.VOCAB, {count}, {generator = draw}):to "int64" end
  return {prompts = tokens(prompts[#prompts]), prompt_offsets = int64(prompts), answers = tokens(answers[#answers]),
          answer_offsets = int64(answers)}
end

-- The sequences of each row, of which the last four of twelve have none.
local PACKED = {{0, 1, 2, 3}, {4, 5}, {6, 7}, {}, {}, {8, 9}, {}, {}, {}, {}, {}, {}}
local ALONE = {{0}, {1}, {2}, {}, {3}, {4}, {5}, {6}, {}, {}, {}, {}}

-- Returns numbers from -1 to 1 in the shape, other ones per `number`.
local function numbers(number, shape)
  local count = 1
  for _, size in ipairs(shape) do count = count * size end
  return zt.sin(zt.arange(count):to "float64" * (0.7 + number) + number):view(shape)
end

-- What stands where no token counts must have no influence, so there is nan.
local function add_fields(batch, step)
  local shape = batch.tokens:size()
  batch.old_logprobs, batch.ref_logprobs = numbers(step, shape) - 2.5, numbers(step + 0.1, shape) - 2.5
  batch.advantages, batch.correction = numbers(step + 0.2, shape), numbers(step + 0.3, shape) + 1
  batch.returns, batch.old_values = numbers(step + 0.4, shape), numbers(step + 0.5, shape)
  batch.teacher_logits = numbers(step + 0.6, {shape[1], shape[2], loss_models.VOCAB})
  batch.teacher_logprobs, batch.teacher_tokens = batch.teacher_logits:log_softmax(-1):topk(3, -1)
  local is_left_out = batch.labels:lt(0)
  if batch.is_ptx then is_left_out = is_left_out:logical_or(batch.is_ptx:ne(0)) end
  for _, name in ipairs{"old_logprobs", "ref_logprobs", "advantages", "correction", "returns", "old_values"} do
    batch[name] = batch[name]:masked_fill(is_left_out, 0 / 0)
  end
  for _, name in ipairs{"teacher_logits", "teacher_logprobs"} do
    batch[name] = batch[name]:masked_fill(is_left_out:unsqueeze(-1), 0 / 0)
  end
  batch.teacher_tokens = batch.teacher_tokens:masked_fill(is_left_out:unsqueeze(-1), -1)
  batch.kl = zt.zeros({shape[1]}, {dtype = "float64"}) + 0.05
end

--- Returns the global batch of a step, in rows whose number of positions depends on the step. padding: "packed", "right", "left".
function loss_models.batch(case, step, padding)
  local in_pairs = case.is_whole
  local all, options = {}, sequences(step)
  options.seq, options.rows, options.padding = SEQ + step, 1, in_pairs and "packed" or padding
  for r, numbers_of_row in ipairs((in_pairs or padding == "packed") and PACKED or ALONE) do
    options.chosen = int64(numbers_of_row)
    local fields = rlhf.make_rows(options).fields
    if case.with_ptx then fields.is_ptx = fields.tokens * 0 + (r > 4 and 1 or 0) end
    for name, field in pairs(fields) do
      all[name] = all[name] or {}
      all[name][r] = field
    end
  end
  local batch = {}
  for name, fields in pairs(all) do batch[name] = zt.cat(fields) end
  add_fields(batch, step)
  return batch
end

--- Returns the rows of a data-parallel rank.
function loss_models.part(batch, dp)
  if not dp then return batch end
  local part, count = {}, loss_models.ROWS / dp.size
  for name, field in pairs(batch) do part[name] = field:narrow(0, dp.rank * count, count):contiguous() end
  return part
end

--- The fields with a number per token, for the option `context` of models.
loss_models.OF_TOKENS = {"tokens", "labels", "positions", "segments", "padding", "sequence", "lengths", "is_ptx", "old_logprobs",
                         "ref_logprobs", "advantages", "correction", "returns", "old_values", "teacher_logits",
                         "teacher_logprobs", "teacher_tokens"}

return loss_models
