--- Reads adapter_config.json of a LoRA adapter as PEFT saves it (LoraConfig). A key that changes what the model computes, and is
-- not read here, is an error that names it.

local Reader = require "zt.ckpt.config_reader"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local json_file = require "zt.ckpt.cmd.json_file"
local native = require "zt.ckpt"

local FILE = "adapter_config.json"
local RANK, ALPHA = 8, 8 -- PEFT's defaults

-- The keys that are read.
local READ = {r = true, lora_alpha = true, rank_pattern = true, alpha_pattern = true, use_rslora = true, bias = true,
              peft_type = true, init_lora_weights = true, lora_dropout = true, modules_to_save = true}

-- The keys that say nothing about the sums to add, {key = why}.
local WITHOUT_EFFECT = {
  auto_mapping = "names classes of Python",
  base_model_name_or_path = "says where the base was",
  corda_config = "is of init_lora_weights",
  ensure_weight_tying = "only says what was trained: the tensors of both names must be equal",
  enable_lora = "is of modules that old versions of PEFT had",
  eva_config = "is of init_lora_weights",
  exclude_modules = "the tensors in the file decide",
  fan_in_fan_out = "lora_A and lora_B are stored alike for both layouts of a weight",
  inference_mode = "says what is trained",
  layers_pattern = "the tensors in the file decide",
  layers_to_transform = "the tensors in the file decide",
  loftq_config = "is of init_lora_weights",
  lora_ga_config = "is of init_lora_weights",
  megatron_core = "is of megatron_config",
  merge_weights = "says when old versions of PEFT add the matrices",
  peft_version = "says what wrote the file",
  qalora_group_size = "is of use_qalora",
  revision = "says which version the base had",
  runtime_config = "says where matrices are computed",
  target_modules = "the tensors in the file decide",
  task_type = "says which class holds the model",
  velora_config = "is of the backward pass",
}

-- The keys that change what the model computes unless they are off: null, false, or empty. {key = what it does}.
local REFUSED = {
  alora_invocation_tokens = "only tokens after an invocation use the adapter (aLoRA), so it cannot be added to the weights",
  arrow_config = "each token chooses among several adapters (Arrow), so they cannot be added to the weights",
  kasa_config = "the base's matrices lose their smallest singular values, and the product has a diagonal between A and B (KaSA)",
  layer_replication = "layers of the base are repeated, so the model is another one",
  lora_bias = "lora_B has a bias, which would have to be added to that of the base",
  megatron_config = "the adapter is one of Megatron's parallel layers, whose names are others",
  monteclora_config = "the matrices are drawn at random (MonteCLoRA)",
  target_parameters = "matrices of experts are changed, and PEFT stores the sums for all experts of a block as one matrix",
  trainable_token_indices = "rows of the embedding are replaced",
  use_bdlora = "A and B hold the blocks of a diagonal only (BD-LoRA)",
  use_dora = "the rows of sums are scaled (DoRA, lora_magnitude_vector)",
  use_qalora = "groups of a layer's inputs are averaged (QA-LoRA)",
}

-- How A and B begin without a change of the base. {value = whether it is right}.
local BEGINNINGS = {["true"] = true, ["false"] = true, gaussian = true, eva = true, orthogonal = true, mica = true}

local Config = {}
Config.__index = Config

local function is_off(value) return value == nil or value == false or (type(value) == "table" and next(value) == nil) end

local function refuse(path, key, value, why, advice)
  local shown = type(value) == "table" and core.json.encode(value) or tostring(value)
  fail("%s has '%s' = %s, and such an adapter is not read here: %s. %s", path, key, shown, why,
    advice or "Merge it into its base by PEFT (merge_and_unload), if PEFT can, and give the folder of the result as the model")
end

-- An error for a key that is not read here and may change what the model computes.
local function check_keys(content, path)
  for _, key in ipairs(check.sorted_keys(content)) do
    local value = content[key]
    if not READ[key] and not WITHOUT_EFFECT[key] and not is_off(value) then
      refuse(path, key, value, REFUSED[key] or "the key is not known here, so it may change what the model computes")
    end
  end
end

-- An error if the base's matrices were changed before the training began: the file holds only what was added to those.
local function check_beginning(content, path)
  local value = content.init_lora_weights
  if value == nil or BEGINNINGS[tostring(value):lower()] then return end
  refuse(path, "init_lora_weights", value, "the base's matrices were changed before the training, and it does not fit the plain "
    .. "ones", "Save it by PEFT with path_initial_model_for_weight_conversion, which makes one for the plain base (PiSSA, OLoRA, "
    .. "CorDA and LoRA-GA), or merge it (merge_and_unload)")
end

-- Returns where a key of a table is written in a file: a table of Lua has lost the order.
local function place_of(source, table_key, key, path)
  local _, from = source:find('"' .. table_key .. '"%s*:%s*{')
  local place = from and source:find(core.json.encode(key), from, true)
  if place then return place end
  fail("%s: the key '%s' of '%s' is not found as it is written, so the order of the patterns is not known: write it without "
    .. "escapes", path, key, table_key)
end

-- Returns {{expression, value}, ...} of a table in the order of the file, as PEFT tries them.
local function patterns_of(reader, source, key, wanted, is_right)
  local list = {}
  local given = reader:get(key, "table", "an object of patterns and numbers", {})
  for pattern, value in pairs(given) do
    if type(pattern) ~= "string" or type(value) ~= "number" or not is_right(value) then
      fail("%s: '%s' has '%s' = %s, where %s is needed: get the file again or correct it", reader.path, key, tostring(pattern),
        tostring(value), wanted)
    end
    list[#list + 1] = {pattern, value, place = place_of(source, key, pattern, reader.path)}
  end
  table.sort(list, function(a, b) return a.place < b.place end)
  return list
end

local function is_rank(x) return x >= 1 and x == math.floor(x) and x < 2 ^ 24 end
local function is_finite(x) return x == x and math.abs(x) < math.huge end

-- Reads the numbers of a config.
local function numbers_of(reader, source)
  local rank, alpha = "a whole number of at least 1", "a finite number"
  return {
    path = reader.path,
    rank = reader:get("r", "number", rank, RANK, is_rank), alpha = reader:get("lora_alpha", "number", alpha, ALPHA, is_finite),
    ranks = patterns_of(reader, source, "rank_pattern", rank, is_rank),
    alphas = patterns_of(reader, source, "alpha_pattern", alpha, is_finite),
    is_stabilised = reader:truth("use_rslora", false),
    saved = reader:get("modules_to_save", "table", "a list of modules' names", {}), dropout = reader:rate("lora_dropout", 0),
  }
end

--- Reads the file of a folder. Returns its numbers, with the functions below.
function Config.read(folder)
  local path = folder .. "/" .. FILE
  if not core.exists(path) then
    fail("'%s' has no %s, so it is no adapter as PEFT saves it: give the folder of a LoRA adapter, with %s and "
      .. "adapter_model.safetensors", folder, FILE, FILE)
  end
  local content, source = json_file(path)
  local reader = Reader.of(content, path)
  local kind = reader:text "peft_type"
  if not kind then fail("%s has no 'peft_type', so PEFT has not written it: give the folder of a LoRA adapter", path) end
  if kind ~= "LORA" then
    refuse(path, "peft_type", kind, "only the matrices of the type LORA are added to weights")
  end
  check_keys(content, path)
  check_beginning(content, path)
  local bias = reader:text("bias", "none")
  if bias ~= "none" then refuse(path, "bias", bias, "biases of the base were trained, too") end
  return setmetatable(numbers_of(reader, source), Config)
end

-- Returns the value of the first pattern that matches a module's name: all of the name, or what follows a dot, as in PEFT.
local function value_of(patterns, module, otherwise, path)
  for _, entry in ipairs(patterns) do
    local is_expression, changed = pcall(native.renamed, {module}, {["^(.*\\.)?(" .. entry[1] .. ")$"] = ""})
    if not is_expression then
      fail("%s: the pattern '%s' is no regular expression that is read here: write it without lookbehind, names of "
        .. "groups and flags, which only Python has", path, entry[1])
    end
    if changed[1] ~= module then return entry[2] end
  end
  return otherwise
end

--- Returns the rank of a module's matrices A [rank, in] and B [out, rank].
function Config:rank_of(module) return value_of(self.ranks, module, self.rank, self.path) end

--- Returns lora_alpha of a module.
function Config:alpha_of(module) return value_of(self.alphas, module, self.alpha, self.path) end

--- Returns the factor of B A.
function Config:scale_of(module)
  local alpha, rank = self:alpha_of(module), self:rank_of(module)
  return alpha / (self.is_stabilised and math.sqrt(rank) or rank)
end

return Config
