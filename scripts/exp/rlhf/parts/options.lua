--- The options of the scripts of this folder.
local zt = require "zt"

local options = {}

-- Rows of zt.cli, with `task`: the default for the task of sorting. With --data such an option has to be given, or is that of the
-- model. `peers` are the names in DeepSpeed-Chat, TRL and PEFT.
local COMMON = {
  {"model", nil, "the model to start from: a run, a checkpoint or a Hugging Face folder; default: the run of sft.lua",
   type = "string", peers = {"model_name_or_path", "actor_model_name_or_path", "sft_model_path"}},
  {"data", nil, "records: a .jsonl file, or a .npy file of ztoolkit tokenize --chat; default: the task of sorting digits",
   type = "string", peers = {"data_path", "dataset_name"}},
  {"tokenizer", nil, "the folder with the tokenizer and the chat template of --data; default: that of --model", type = "string"},
  {"skip_bad", false, "leave out records of --data that are wrong, and count them"},
  {"seq", nil, "positions of a row, which takes several sequences; with --data the model's by default", type = "integer",
   at_least = 2, task = 64, is_of_model = true, peers = {"max_seq_len", "max_length"}},
  {"micro_batches", 1, "micro-batches per rank and step", at_least = 1, peers = {"gradient_accumulation_steps"}},
  {"clip", 1, "largest gradient norm; 0: off", type = "number", at_least = 0, peers = {"max_grad_norm", "gradient_clipping"}},
  {"weight_decay", 0, "decay of matrices", type = "number", at_least = 0, peers = {"actor_weight_decay"}},
  {"warmup", 5, "steps to the peak rate; in a run that is not longer, a quarter of its steps", at_least = 0,
   peers = {"num_warmup_steps", "warmup_steps"}},
  {"stage", 1, "ZeRO stage", between = {0, 3}, peers = {"zero_stage", "actor_zero_stage"}},
  {"recompute", 0, "keep no activations in every k-th block; 0: keep all", at_least = 0,
   peers = {"gradient_checkpointing", "actor_gradient_checkpointing"}},
  {"offload", nil, "where optimizer state and gradients lie between their uses, at stage 3 parameters, too: host, or a folder on "
    .. "NVMe; default: in memory", type = "string"},
  {"dropout", nil, "of the blocks in training; default: the model's", type = "number", between = {0, 0.99},
   peers = {"actor_dropout"}},
  {"phases", nil, "shares of the records for SFT, reward model and policy, such as 2,4,4; default: each reads all",
   type = "list", peers = {"data_split"}},
  {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16", "fp64"}, peers = {"dtype"}},
  {"lora_rank", 0, "train adapters of this rank; 0: all parameters", at_least = 0,
   peers = {"lora_dim", "actor_lora_dim", "lora_r"}},
  {"lora_alpha", nil, "products of adapters count this / rank; default: twice the rank", type = "number", above = 0},
  {"lora_targets", nil, "matrices with adapters, such as q,v,out,up,down; default: q,v", type = "list",
   peers = {"lora_module_name", "actor_lora_module_name", "target_modules", "lora_target_modules"}},
  {"pack", nil, "with --lora-rank: hold the frozen matrices packed (QLoRA)", type = "string", one_of = {"int8", "int4", "nf4"},
   peers = {"load_in_4bit", "load_in_8bit"}},
  {"seed", 1, "of data, samples and new parameters", at_least = 0},
  {"folder", "runs", "the parent folder of all runs"},
  {"overwrite", false, "replace an earlier run of that name instead of resuming it"},
  {"save_every", 50, "steps between two checkpoints; 0: one at the end", at_least = 0, peers = {"save_steps"}},
  {"test", nil, "prompts of the task of sorting that are answered at the end; default: 1000", type = "integer", at_least = 0},
  {"tensorboard", false, "write event files, too", peers = {"enable_tensorboard"}},
}

-- Options that have an effect with others only: {name, function(options): whether it has one, what to do}. They have no default.
local function has_text(o) return o.data and not o.data:find "%.npy$" end
local function has_adapters(o) return o.lora_rank > 0 end
local NEEDS = {
  {"lora_targets", has_adapters, "names matrices with adapters: give --lora-rank, too"},
  {"lora_alpha", has_adapters, "is of adapters: give --lora-rank, too"},
  {"pack", has_adapters, "is for matrices that are frozen beside adapters: give --lora-rank, too"},
  {"tokenizer", function(o) return o.data end, "is that of --data, and the task of sorting has its own: give --data, too"},
  {"skip_bad", has_text, "is for records of a .jsonl file: give --data, or ztoolkit tokenize --chat the option --skip-bad"},
  {"test", function(o) return not o.data or o.test == 0 end, "is for the task of sorting, which --data replaces: leave it out"},
}

local function flag_of(name) return "--" .. name:gsub("_", "-") end

-- Fails for an option without effect that is not the script's default. needs: as NEEDS.
local function check_needs(o, needs, defaults)
  for _, need in ipairs(needs) do
    local name, has_effect, advice = unpack(need)
    local is_given = o[name] and o[name] ~= defaults[name]
    if is_given and not has_effect(o) then error(("%s %s"):format(flag_of(name), advice), 0) end
  end
end

-- Returns a row as zt.cli takes it.
local function cli_row(row)
  local copy = {}
  for key, value in pairs(row) do copy[key] = value end
  if row.task then copy[3] = ("%s; for the task of sorting %g"):format(row[3], row.task) end
  copy.task, copy.is_of_model = nil, nil
  return copy
end

-- Sets the options that are not given to what is right for the task. They have to be given for other data.
local function set_task(o, rows)
  for _, row in ipairs(rows) do
    local name = row[1]
    if row.task and o[name] == nil then
      if not o.data then
        o[name] = row.task
      elseif not row.is_of_model then
        error(("--data needs %s, %s: what the task of sorting needs is not right for other data"):format(flag_of(name), row[3]),
          0)
      end
    end
  end
end

--- Returns the rows of a script that trains on batches of records, and more. steps: the default; lr: that of the task of sorting.
function options.of_batches(steps, lr, more)
  local rows = {
    {"steps", steps, "optimizer steps", at_least = 1, peers = {"max_steps"}},
    {"batch", 32, "rows per step, over all ranks", at_least = 1, peers = {"per_device_train_batch_size"}},
    {"lr", nil, "the peak learning rate", type = "number", above = 0, task = lr, peers = {"learning_rate"}},
  }
  for _, row in ipairs(more) do rows[#rows + 1] = row end
  return rows
end

--- Reads the command line: the options above with other defaults, and more rows. defaults: {name = value of the option, or for
-- one with `task` that of the task}. needs: of the latter rows, as NEEDS.
function options.read(name, about, defaults, more, needs)
  local rows = {{"name", name, "the run's folder", peers = {"output_dir"}}}
  for _, row in ipairs(COMMON) do
    local copy = {}
    for key, value in pairs(row) do copy[key] = value end
    if defaults[row[1]] ~= nil then copy[row.task and "task" or 2] = defaults[row[1]] end
    rows[#rows + 1] = copy
  end
  for _, row in ipairs(more) do rows[#rows + 1] = row end
  local of_cli = {}
  for place, row in ipairs(rows) do of_cli[place] = cli_row(row) end
  local o = zt.cli{name = name, options = of_cli,
                   about = about .. " docs/deepspeed_chat.md has the names of DeepSpeed-Chat's, TRL's and PEFT's options."}
  check_needs(o, NEEDS, defaults)
  check_needs(o, needs or {}, defaults)
  set_task(o, rows)
  o.test = o.test or o.data and 0 or 1000
  return o
end

return options
