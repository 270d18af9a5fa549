--- ckpt.lora_options(folder, options): the option `lora` of nn.gpt for the adapter in a PEFT folder. options: those of the base.

local Config = require "zt.ckpt.loading.adapter_config"
local Modules = require "zt.ckpt.adapters.modules"
local Tensors = require "zt.ckpt.loading.adapter_tensors"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local text = require "zt.text"

-- Returns the target of a module. An error for a matrix that nn.gpt gives no adapters.
local function target_of(modules, module, path)
  local target, parameter = modules:target_of(module), modules.linear[module].parameter
  if target then return target end
  if parameter:find "%.experts%." then
    fail("%s has an adapter of '%s', a matrix of an expert, and experts have none here: the matrices of all experts are one "
      .. "tensor, whose rows are sorted by expert. Give the adapter to an engine (infer.engine{model =, adapter =}), which adds "
      .. "it to the weights", path, module)
  end
  fail("%s has an adapter of '%s', and nn.gpt's option lora has no target for '%s': its targets are attention, dense MLPs and "
    .. "the head", path, module, parameter)
end

-- Returns {target = {block = module}} of the adapters in blocks, the set of blocks, and the module of the head or nil.
local function by_target(modules, tensors)
  local blocks_of, blocks, head = {}, {}, nil
  for _, module in ipairs(check.sorted_keys(tensors.halves)) do
    local target = target_of(modules, module, tensors.path)
    if target.block then
      blocks_of[target.target] = blocks_of[target.target] or {}
      blocks_of[target.target][target.block], blocks[target.block] = module, true
    else
      head = module
    end
  end
  return blocks_of, blocks, head
end

-- An error if a block lacks a module that others have: the option `layers` holds for all targets.
local function check_blocks(modules, blocks_of, blocks, path)
  for _, target in ipairs(modules.targets) do
    local of_target = blocks_of[target.target]
    if target.block and of_target and blocks[target.block] and not of_target[target.block] then
      local there, lacking = {}, {}
      for _, other in ipairs(modules.targets) do
        if other.target == target.target and blocks[other.block] then
          local module = modules:of_rows(other)[1]
          table.insert(of_target[other.block] and there or lacking, module)
        end
      end
      fail("%s has adapters of %s, and none of %s, though those blocks have others: the option lora.layers of nn.gpt holds for "
        .. "all targets, so the blocks with adapters need the same ones. Train it with the same target_modules in all blocks, or "
        .. "add it to the weights by an engine (infer.engine{model =, adapter =})", path, text.some(there), text.some(lacking))
    end
  end
end

-- Returns the list of the blocks with adapters; nil if all have some, or none.
local function layers_of(blocks, count)
  local list = {}
  for block = 0, count - 1 do
    if blocks[block] then list[#list + 1] = block end
  end
  return #list > 0 and #list < count and list or nil
end

-- Returns the ranks and alphas that differ from the common ones, by "blocks.N.TARGET"; nil for none.
local function others_of(modules, tensors, config)
  local ranks, alphas = {}, {}
  for _, module in ipairs(check.sorted_keys(tensors.halves)) do
    local target = modules:target_of(module)
    local name = target.block and ("blocks.%d.%s"):format(target.block, target.target) or target.target
    local rank, alpha = config:rank_of(module), config:alpha_of(module)
    modules:check_pair(tensors, module, rank)
    if rank ~= config.rank then ranks[name] = rank end
    if alpha ~= config.alpha then alphas[name] = alpha end
  end
  return next(ranks) and ranks, next(alphas) and alphas
end

return function(folder, options)
  check.argument("ckpt.lora_options", "the folder of the adapter", "string", folder)
  check.argument("ckpt.lora_options", "the options of the base", "table", options)
  if not core.exists(folder) then fail("there is no folder '%s': give the folder of a LoRA adapter", folder) end
  local config, tensors = Config.read(folder), Tensors.open(folder)
  local modules = Modules.of(options, "the model of these options")
  modules:check_names(tensors)
  if next(tensors.halves) == nil then
    fail("%s has whole tensors only, and no matrices A and B, so there is nothing for the option lora", tensors.path)
  end
  local blocks_of, blocks, head = by_target(modules, tensors)
  check_blocks(modules, blocks_of, blocks, tensors.path)
  local targets, is_there = {}, {}
  for _, target in ipairs(modules.targets) do
    local name = target.target
    if not is_there[name] and (blocks_of[name] or (head and not target.block)) then targets[#targets + 1] = name end
    is_there[name] = true
  end
  local ranks, alphas = others_of(modules, tensors, config)
  return {
    rank = config.rank, alpha = config.alpha, scale = config.is_stabilised and "alpha/sqrt(r)" or "alpha/r", targets = targets,
    layers = layers_of(blocks, modules.options.layers), ranks = ranks or nil, alphas = alphas or nil,
    dropout = config.dropout > 0 and config.dropout or nil,
  }
end
