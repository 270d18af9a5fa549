--- Writes adapter_config.json as PEFT 0.21 does (LoraConfig.save_pretrained).

local check = require "zt.check"
local core = require "zt.core"

local peft_config = {}

local NULL = 0 / 0 -- is encoded as null

-- The keys that say nothing of these adapters, with PEFT's values.
local CONSTANT = {
  alora_invocation_tokens = NULL, arrow_config = NULL, auto_mapping = NULL, bias = "none", corda_config = NULL,
  ensure_weight_tying = false, eva_config = NULL, exclude_modules = NULL, inference_mode = true,
  kasa_config = NULL, layer_replication = NULL, loftq_config = {}, lora_bias = false, lora_ga_config = NULL,
  megatron_config = NULL, megatron_core = "megatron.core", monteclora_config = NULL, peft_type = "LORA", peft_version = "0.21.2",
  qalora_group_size = 16, revision = NULL, target_parameters = NULL, trainable_token_indices = NULL, use_bdlora = NULL,
  use_dora = false, use_qalora = false, velora_config = NULL,
}

-- Returns the value that most elements of a list have; of several such values the least.
local function usual(list, key)
  local counts, best = {}, nil
  for _, each in ipairs(list) do counts[each[key]] = (counts[each[key]] or 0) + 1 end
  for value, count in pairs(counts) do
    if not best or count > counts[best] or (count == counts[best] and value < best) then best = value end
  end
  return best
end

-- Returns {module = value} of those with another value than the usual one.
local function others(list, key, common)
  local pattern = {}
  for _, each in ipairs(list) do
    if each[key] ~= common then pattern[each.module] = each[key] end
  end
  return pattern
end

-- Returns whether PEFT takes a module for a target of this name: a module's whole name, or what follows a dot at its end. layers:
-- the set of the blocks with adapters, or nil, which counts for names that are not whole.
local function matches(module, target, layers, block_of)
  if module == target then return true end
  if module:sub(-#target - 1) ~= "." .. target then return false end
  return layers == nil or layers[block_of(module) or -1] == true
end

-- Returns the shortest end of a module's name that no module without an adapter has.
local function shortest_end(module, unwanted, layers, block_of)
  local from = #module + 1
  while true do
    from = (module:sub(1, from - 1):match "^.*()%." or 0)
    local target, is_right = module:sub(from + 1), true
    for _, other in ipairs(unwanted) do is_right = is_right and not matches(other, target, layers, block_of) end
    if from == 0 or (is_right and matches(module, target, layers, block_of)) then return target end
  end
end

-- Returns target_modules: names that PEFT finds in exactly the modules of the list.
local function targets_of(modules, list, layers)
  local is_wanted, unwanted, targets = {}, {}, {}
  for _, each in ipairs(list) do is_wanted[each.module] = true end
  for name, part in pairs(modules.parts) do
    local module = name:gsub("%.weight$", "")
    if part.columns and not is_wanted[module] then unwanted[#unwanted + 1] = module end
  end
  for module in pairs(is_wanted) do
    local target = shortest_end(module, unwanted, layers, modules.block_of)
    targets[target] = true
  end
  return check.sorted_keys(targets)
end

-- Returns the list of the blocks that have adapters, and its set; nil if all blocks have.
local function layers_of(modules, list)
  local set, sorted = {}, {}
  for _, each in ipairs(list) do
    local block = modules.block_of(each.module)
    if block then set[block] = true end
  end
  for block = 0, modules.options.layers - 1 do
    if set[block] then sorted[#sorted + 1] = block end
  end
  if #sorted == 0 or #sorted == modules.options.layers then return nil end
  return sorted, set
end

--- Returns the text of the file. modules: as Modules.of returns them. list: as saved.modules does. facts: {is_by_root =,
-- dropout =, init =, modules_to_save =, base_model =, task_type =}.
function peft_config.text(modules, list, facts)
  local config, rank, alpha = {}, usual(list, "rank"), usual(list, "alpha")
  for key, value in pairs(CONSTANT) do config[key] = value end
  local layers, set = layers_of(modules, list)
  config.r, config.lora_alpha, config.use_rslora = rank, alpha, facts.is_by_root
  config.rank_pattern, config.alpha_pattern = others(list, "rank", rank), others(list, "alpha", alpha)
  config.target_modules = targets_of(modules, list, set)
  config.layers_to_transform = layers or NULL
  config.layers_pattern = layers and list[1].module:match "^[%a_]+%.([%a_]+)%." or NULL
  config.lora_dropout, config.fan_in_fan_out = facts.dropout, false
  config.init_lora_weights = facts.init == "gaussian" and facts.init or true
  for _, each in ipairs(list) do
    local part = modules.linear[each.module]
    if part.transposed then config.fan_in_fan_out = true end
  end
  config.modules_to_save = #facts.modules_to_save > 0 and facts.modules_to_save or NULL
  config.base_model_name_or_path, config.task_type = facts.base_model or NULL, facts.task_type or NULL
  return core.json.encode(config, 2) .. "\n"
end

return peft_config
