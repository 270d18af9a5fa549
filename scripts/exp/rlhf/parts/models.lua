--- The models of the scripts of this folder, their trainers and engines.
local zt = require "zt"
local ckpt, infer, moe, optim = require "zt.ckpt", require "zt.infer", require "zt.moe", require "zt.optim"
local rlhf, zero = require "zt.rlhf", require "zt.zero"
local sort = require "parts.sort"

local models = {}

-- Sets --seq by the model, and checks that the model has so many positions.
local function check_seq(o, of_model)
  local most = of_model.seq or 0
  if not o.seq then
    if most == 0 then error("the model does not tell the longest sequence of its training: give --seq", 0) end
    o.seq = most
  end
  if most == 0 or o.seq <= most then return end
  if not of_model.rope_base and (of_model.position or "learned") == "learned" then
    error(("--seq is %d, and the model has %d positions: give at most as many"):format(o.seq, most), 0)
  end
  if zt.world.rank == 0 then
    zt.log.warn("--seq is %d, and the model was made for %d positions: what it says beyond them may be useless", o.seq, most)
  end
end

--- Opens the model that the script starts from, a result of ckpt.pretrained, and sets --seq if it is not given.
function models.open(o, path)
  local base = ckpt.pretrained(path)
  if not o.data and base.options.vocab ~= sort.VOCAB then
    error(("'%s' has a vocabulary of %d tokens, and the task of sorting digits, which is learnt without --data, has %d: give "
      .. "--data"):format(path, base.options.vocab, sort.VOCAB), 0)
  end
  check_seq(o, base.options)
  return base
end

-- Returns the text of a tokenizer, nil for one without.
local function text_of(tokenizer)
  local has_text, text = pcall(function() return tokenizer:model() end)
  return has_text and text ~= "" and text or nil
end

--- Fails unless data or a model, told by `what`, have the tokenizer of the model that the script starts from.
function models.check_tokenizer(base, tokenizer, what)
  local mine, other = text_of(base.tokenizer), text_of(tokenizer)
  if mine and other and mine ~= other then
    error(("%s another tokenizer than the model '%s': make them with that of the model"):format(what, base.path), 0)
  end
  if tokenizer and tokenizer.vocab > base.options.vocab then
    error(("%s a tokenizer of %d tokens, and the model '%s' has %d: give what belongs to this model"):format(what,
      tokenizer.vocab, base.path, base.options.vocab), 0)
  end
end

-- Returns the option `lora` of nn.gpt, or nil.
local function lora_of(o)
  if o.lora_rank == 0 then return nil end
  return {rank = o.lora_rank, alpha = o.lora_alpha or 2 * o.lora_rank, targets = o.lora_targets or nil}
end

-- Returns the adapters of a model that is trained. of_start: those of the model that it begins as, or nil.
local function adapters_of(o, of_start)
  if not of_start or o.is_frozen then return of_start or lora_of(o) end
  local targets = table.concat(of_start.targets or {"q", "v"}, ",")
  local is_same = not o.lora_targets or table.concat(o.lora_targets, ",") == targets
  if o.lora_rank == of_start.rank and is_same then return of_start end
  local flag = o.is_critic and "--critic-lora-" or "--lora-"
  error(("the model to start from has adapters: train these further, by %srank %d %stargets %s, or add them to its parameters "
    .. "before, by ztoolkit ckpt export --merge"):format(flag, of_start.rank, flag, targets), 0)
end

-- Returns the options of model:pack for the frozen matrices of a model, or nil.
local function packing_of(o, base, lora)
  if base.weights and not lora and not o.is_frozen then
    error(("the matrices of '%s' are packed, and only adapters can be trained beside such: give --lora-rank")
      :format(base.path), 0)
  end
  if base.weights and o.pack then
    error(("the matrices of '%s' are packed already: leave --pack out"):format(base.path), 0)
  end
  return base.weights or (lora and o.pack and {format = o.pack}) or nil
end

--- Returns a model of a base (of ckpt.pretrained, or {options = those of moe.gpt}) with another head and, with --lora-rank,
-- adapters. A base that has adapters keeps them, and packed matrices stay packed.
function models.make(o, base, head, more)
  local all = {}
  for _, from in ipairs{base.options, {head = head}, more or {}} do
    for key, value in pairs(from) do all[key] = value end
  end
  if head ~= "logprobs" then all.temperature, all.entropy = nil, nil end
  if head ~= "value" then all.value_bias = nil end
  all.dropout = o.dropout or all.dropout
  all.lora = adapters_of(o, base.options.lora)
  local model, packing = moe.gpt(all), packing_of(o, base, all.lora)
  if packing then model:pack(packing) end
  return model
end

--- Returns a trainer. how: {lr =, steps =, ema = decay of an average of the parameters, or 0}; without it, one that holds a
-- frozen model.
function models.trainer(o, mesh, model, how)
  local program = zt.program(model, {micro_batches = how and o.micro_batches or 1, precision = o.precision})
    :apply(zero.shard{axis = mesh.dp, stage = o.stage})
  if not how then return zt.trainer(program) end
  if o.recompute > 0 then program = program:apply(zt.recompute{every = o.recompute}) end
  if o.offload then
    local to = o.offload == "host" and "host" or "nvme"
    program = program:apply(require "zt.offload".move{
      optimizer = to, gradients = to, parameters = o.stage == 3 and to or nil, folder = to == "nvme" and o.offload or nil,
    })
  end
  if how.ema and how.ema > 0 then program = program:apply(rlhf.ema{decay = how.ema, mesh = mesh}) end
  local warmup = o.warmup < how.steps and o.warmup or math.floor(how.steps / 4)
  return zt.trainer(program, {
    optimizer = optim.adamw{lr = how.lr, betas = {0.9, 0.95}, weight_decay = o.weight_decay}, clip = o.clip,
    schedule = optim.warmup_cosine{warmup = warmup, total = how.steps, min_ratio = 0.1},
  })
end

--- Returns a frozen model: a reference, a reward model or a teacher. head, more: as of models.make.
function models.frozen(o, mesh, base, head, more)
  local frozen = setmetatable({is_frozen = true, lora_rank = 0, pack = false}, {__index = o})
  local trainer = models.trainer(o, mesh, models.make(frozen, base, head, more))
  base:load(trainer)
  return trainer
end

--- Returns the reference of a policy that begins as `base`, for rlhf.score: "base", the policy without its adapters, if these
-- are new; else a frozen model.
function models.reference(o, mesh, base)
  if o.lora_rank > 0 and not base.options.lora then return "base" end
  return models.frozen(o, mesh, base, "logprobs", {temperature = o.temperature})
end

--- Returns an engine with the parameters of a trainer. layout: {mesh =, tensor =, data =} of parameters of its own; without it,
-- the engine reads the trainer's where they lie.
function models.engine(o, trainer, tokenizer, stop_tokens, layout)
  layout = layout or {}
  return infer.engine{trainer = trainer, tokenizer = tokenizer, stop_tokens = stop_tokens, max_sequences = 256,
                      token_budget = 1024, max_context = o.seq, mesh = layout.mesh, tensor = layout.tensor, data = layout.data}
end

return models
