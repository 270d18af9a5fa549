--- Functions that the scripts of this folder share: options, data, models, trainers.
local zt = require "zt"
local ckpt, comm, data, infer = require "zt.ckpt", require "zt.comm", require "zt.data", require "zt.infer"
local moe, optim, rlhf, zero = require "zt.moe", require "zt.optim", require "zt.rlhf", require "zt.zero"
local on_rank_zero = require "zt.on_rank_zero"
local sort = require "parts.sort"

local experiment = {HERE = arg[0]:match "^(.*/)[^/]*$" or "./"}

local COMMON = {
  {"model", nil, "the model to start from: a run, a checkpoint or a Hugging Face folder; default: the run of sft.lua",
   type = "string"},
  {"data", nil, "records: a .jsonl file, or a .npy file of ztoolkit tokenize --chat; default: the task of sorting digits",
   type = "string"},
  {"tokenizer", nil, "the folder with the tokenizer and the chat template of --data; default: that of --model", type = "string"},
  {"skip_bad", false, "leave out records of --data that are wrong, and count them"},
  {"seq", 64, "positions of a row, which takes several sequences", at_least = 2},
  {"micro_batches", 1, "micro-batches per rank and step", at_least = 1},
  {"clip", 1, "largest gradient norm; 0: off", type = "number", at_least = 0},
  {"weight_decay", 0, "decay of matrices", type = "number", at_least = 0},
  {"warmup", 5, "steps to the peak rate; in a run that is not longer, a quarter of its steps", at_least = 0},
  {"stage", 1, "ZeRO stage", between = {0, 3}},
  {"recompute", 0, "keep no activations in every k-th block; 0: keep all", at_least = 0},
  {"offload", nil, "where optimizer state and gradients lie between their uses, at stage 3 parameters, too: host, or a folder on "
    .. "NVMe; default: in memory", type = "string"},
  {"dropout", nil, "of the blocks in training; default: the model's", type = "number", between = {0, 0.99}},
  {"phases", nil, "shares of the records for SFT, reward model and policy, such as 2,4,4; default: each reads all",
   type = "list"},
  {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16", "fp64"}},
  {"lora_rank", 0, "train adapters of this rank; 0: all parameters", at_least = 0},
  {"lora_targets", nil, "matrices with adapters, such as q,v,out,up,down; default: q,v", type = "list"},
  {"seed", 1, "of data, samples and new parameters", at_least = 0},
  {"folder", "runs", "the parent folder of all runs"},
  {"overwrite", false, "replace an earlier run of that name instead of resuming it"},
  {"save_every", 0, "steps between two checkpoints; 0: one at the end", at_least = 0},
  {"test", nil, "prompts of the task of sorting that are answered at the end; default: 1000", type = "integer", at_least = 0},
  {"tensorboard", false, "write event files, too"},
}

-- Options that have an effect with others only: {name, function(options): whether it has one, what to do}. They have no default.
local function has_text(o) return o.data and not o.data:find "%.npy$" end
local NEEDS = {
  {"lora_targets", function(o) return o.lora_rank > 0 end, "names matrices with adapters: give --lora-rank, too"},
  {"tokenizer", function(o) return o.data end, "is that of --data, and the task of sorting has its own: give --data, too"},
  {"skip_bad", has_text, "is for records of a .jsonl file: give --data, or ztoolkit tokenize --chat the option --skip-bad"},
  {"test", function(o) return not o.data or o.test == 0 end, "is for the task of sorting, which --data replaces: leave it out"},
}

-- Fails for an option without effect that is not the script's default. needs: as NEEDS.
local function check_needs(o, needs, defaults)
  for _, need in ipairs(needs) do
    local name, has_effect, advice = unpack(need)
    local is_given = o[name] and o[name] ~= defaults[name]
    if is_given and not has_effect(o) then error(("--%s %s"):format(name:gsub("_", "-"), advice), 0) end
  end
end

--- Reads the command line: the options above with other defaults, and more options. needs: of the latter, as NEEDS.
function experiment.options(name, about, defaults, more, needs)
  local rows = {{"name", name, "the run's folder"}}
  for _, row in ipairs(COMMON) do
    local copy = {}
    for key, value in pairs(row) do copy[key] = value end
    if defaults[row[1]] ~= nil then copy[2] = defaults[row[1]] end
    rows[#rows + 1] = copy
  end
  for _, row in ipairs(more) do rows[#rows + 1] = row end
  local o = zt.cli{name = name, about = about, options = rows}
  check_needs(o, NEEDS, defaults)
  check_needs(o, needs or {}, defaults)
  o.test = o.test or o.data and 0 or 1000
  return o
end

function experiment.say(...) if zt.world.rank == 0 then print(string.format(...)) end end

--- Runs another script of this folder, in this process.
function experiment.run(script, arguments)
  local before, words = _G.arg, {[0] = experiment.HERE .. script}
  for i, word in ipairs(arguments) do words[i] = tostring(word) end
  rawset(_G, "arg", words)
  dofile(words[0])
  rawset(_G, "arg", before)
  collectgarbage()
end

--- Returns --model, or the run of sft.lua in the same folder, which runs before if there is none.
function experiment.start_of(o)
  if o.model then return o.model end
  local run = o.folder .. "/sft"
  if not zt.exists(run) or not ckpt.find(run) then
    experiment.say("there is no model to start from: running sft.lua first")
    experiment.run("sft.lua", {"--folder", o.folder, "--seed", o.seed, "--test", 0})
  end
  return run
end

--- Returns the mesh of all ranks, one axis.
function experiment.mesh() return comm.mesh{dp = -1} end

--- Returns the option `phase` of streams: the records of SFT are phase 0, of the reward model 1, of the policy 2.
function experiment.phase(o, index)
  if not o.phases then return nil end
  local weights = {}
  for place, word in ipairs(o.phases) do weights[place] = tonumber(word) end
  if #weights ~= 3 then error("--phases takes three numbers, such as 2,4,4", 0) end
  return {weights = weights, index = index}
end

-- Returns the path of a .npy file with the records of a .jsonl file.
local function tokenized(o, path, kind, folder)
  if path:find "%.npy$" then return path end
  if not folder then
    error("--data is text, and a tokenizer is needed: give --tokenizer, a folder of Hugging Face or a run, or --model", 0)
  end
  local base = path:match "([^/]*)%.jsonl?$" or path:match "[^/]*$"
  local output = ("%s/data/%s_%s_%s.npy"):format(o.folder, o.name, base, kind) -- each run has files of its own
  zt.mkdir_p(o.folder .. "/data")
  local is_done, made = pcall(data.tokenize_chat, {
    input = path, model = folder, output = output, skip_bad = o.skip_bad,
    on_bad = function(message) zt.log.warn("left out: %s", message) end,
  })
  if not is_done then error((tostring(made):gsub("skip_bad = true", "--skip-bad")), 0) end
  if made.skipped > 0 then experiment.say("%d records are used, and %d are left out", made.records, made.skipped) end
  if made.kind ~= kind then error(("'%s' has %s, and this script needs %s"):format(path, made.kind, kind), 0) end
  return output
end

local SORT_RECORDS = 20000

-- Returns the path of the task's file, which is written if it is missing.
local function sort_file(o, name)
  local folder = o.folder .. "/sort"
  local output = ("%s/%s.npy"):format(folder, name)
  sort.write(folder, SORT_RECORDS, 1)
  if not zt.exists(output) then
    data.tokenize_chat{input = ("%s/%s.jsonl"):format(folder, name), model = folder, output = output, plain = true}
  end
  return output
end

--- Returns the path of the token file of these records, "conversations", "preferences" or "prompts".
function experiment.data(o, mesh, kind)
  local of_sort = {conversations = "sft", preferences = "pairs", prompts = "prompts"}
  return on_rank_zero(mesh:world(), function()
    if o.data then return tokenized(o, o.data, kind, o.tokenizer or o.model) end
    return sort_file(o, of_sort[kind])
  end)
end

--- Returns the tokens that end an answer, as the companion of a token file says.
function experiment.stop_tokens(path)
  local companion = zt.json.decode(zt.fs.read((path:gsub("%.npy$", ".json"))))
  return companion.stop_tokens and #companion.stop_tokens > 0 and companion.stop_tokens or nil
end

-- Returns the option `lora` of nn.gpt, or nil.
local function lora_of(o)
  if o.lora_rank == 0 then return nil end
  return {rank = o.lora_rank, alpha = 2 * o.lora_rank, targets = o.lora_targets or nil}
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

--- Returns a model of these options of moe.gpt (`base.options` of ckpt.pretrained) with another head and, with --lora-rank,
-- adapters. A model that has adapters keeps them.
function experiment.model(o, options, head, more)
  local all = {}
  for _, from in ipairs{options, {head = head}, more or {}} do
    for key, value in pairs(from) do all[key] = value end
  end
  if head ~= "logprobs" then all.temperature, all.entropy = nil, nil end
  if head ~= "value" then all.value_bias = nil end
  all.dropout = o.dropout or all.dropout
  all.lora = adapters_of(o, options.lora)
  return moe.gpt(all)
end

--- Returns a trainer. how: {lr =, steps =, ema = decay of an average of the parameters, or 0}; without it, one that holds a
-- frozen model.
function experiment.trainer(o, mesh, model, how)
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

--- Returns a frozen model: a reference, a reward model or a teacher. options, head, more: as of experiment.model.
function experiment.frozen(o, mesh, base, head, more)
  local frozen = setmetatable({is_frozen = true, lora_rank = 0}, {__index = o})
  local trainer = experiment.trainer(o, mesh, experiment.model(frozen, base.options, head, more))
  base:load(trainer)
  return trainer
end

--- Returns the reference of a policy that begins as `base`, for rlhf.score: "base", the policy without its adapters, if these
-- are new; else a frozen model.
function experiment.reference(o, mesh, base)
  if o.lora_rank > 0 and not base.options.lora then return "base" end
  return experiment.frozen(o, mesh, base, "logprobs", {temperature = o.temperature})
end

--- Opens the run of a trainer. Its checkpoints keep the tokenizer. base: of ckpt.pretrained, or nil; steps: steps or iterations;
-- show: keys that the progress shows.
function experiment.begin(o, mesh, trainer, stream, base, steps, show)
  local tokenizer = o.tokenizer or base or (not o.data and o.folder .. "/sort") or nil
  return zt.run{name = o.name, folder = o.folder, overwrite = o.overwrite, resume = not o.overwrite, mesh = mesh,
                trainer = trainer, data = stream, options = o, tokenizer = tokenizer, steps = steps, show = show,
                tensorboard = o.tensorboard}
end

--- Returns whether to save after `done` of `steps` steps: every --save-every, and at the end.
function experiment.saves(o, done, steps) return done == steps or o.save_every > 0 and done % o.save_every == 0 end

--- Saves, if it is due. objects: what is saved besides the run's trainer.
function experiment.save(o, run, done, steps, objects)
  if experiment.saves(o, done, steps) then ckpt.save(run, done, {keep = 2, objects = objects}) end
end

--- Returns an engine with the parameters of a trainer. layout: {mesh =, tensor =, data =} of parameters of its own; without it,
-- the engine reads the trainer's where they lie.
function experiment.engine(o, trainer, tokenizer, stop_tokens, layout)
  layout = layout or {}
  return infer.engine{trainer = trainer, tokenizer = tokenizer, stop_tokens = stop_tokens, max_sequences = 256,
                      token_budget = 1024, max_context = o.seq, mesh = layout.mesh, tensor = layout.tensor, data = layout.data}
end

--- Returns n samples at temperature 1 for each of --test unseen prompts of the task of sorting.
function experiment.unseen(o, mesh, engine, n)
  local path = on_rank_zero(mesh:world(), function() return sort_file(o, "unseen") end)
  local unseen = data.prompts{path = path, batch = o.test, validation = 0, shuffle = false}
  return rlhf.rollout{engine = engine, prompts = unseen:batch(0), n = n, max_tokens = sort.MAX_TOKENS, mesh = mesh, seed = 12345}
end

--- Returns the share of --test unseen prompts of the task of sorting that samples answer rightly; nil for other data.
function experiment.accuracy(o, mesh, engine)
  if o.data or o.test == 0 then return nil end
  local answers = experiment.unseen(o, mesh, engine, 1)
  rlhf.score(answers, {reward = sort.reward})
  return answers.metrics.reward
end

--- Records what a run of `steps` steps has measured at its end. A run that was complete when it was resumed has gone past its
-- last step, and an earlier start has recorded it.
function experiment.log_end(run, steps, values)
  if run.last_step < steps then run:log(steps - 1, values) end
end

--- Ends a run of `steps` steps: measures how often the engine's answers are right, if the task says so, and sets
-- experiment.result. more: what the result has besides.
function experiment.finish(o, mesh, run, engine, steps, more)
  local accuracy = experiment.accuracy(o, mesh, engine)
  if accuracy then
    experiment.log_end(run, steps, {accuracy = accuracy})
    experiment.say("right in %.3f of %d samples", accuracy, o.test)
  end
  run:finish()
  experiment.result = more or {}
  experiment.result.accuracy, experiment.result.run = accuracy, run.path
end

return experiment
