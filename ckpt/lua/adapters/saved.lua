--- Describes a model's adapters, and the modules that are trained as a whole beside them, as PEFT's files do. Reads no values.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local links = require "zt.ckpt.adapters.links"
local model_head = require "zt.ckpt.config.model_head"
local names = require "zt.ckpt.names"

local saved = {}

local PREFIX = "base_model.model."

-- Returns the function that gives the rows of B that a module has.
local function rows_of(adapter, part)
  return function(read) return read(adapter.name .. ".b"):narrow(0, part.first - adapter.first, part.rows) end
end

-- Returns the functions that give A and B of a module of which several adapters change parts.
local function stacked_halves(link, part, common)
  local function a_of(read)
    local all = {}
    for place, adapter in ipairs(link.adapters) do all[place] = read(adapter.name .. ".a") end
    return core.cat(all, 0)
  end
  local function b_of(read)
    local whole, column = nil, 0
    for _, adapter in ipairs(link.adapters) do
      local b = read(adapter.name .. ".b")
      whole = whole or core.zeros({part.rows, common.rank}, {dtype = b:dtype()})
      local ratio = adapter.scale == common.scale and 1 or adapter.scale / common.scale
      whole:narrow(0, adapter.first - part.first, adapter.rows):narrow(1, column, adapter.rank):copy_(b * ratio)
      column = column + adapter.rank
    end
    return whole
  end
  return a_of, b_of
end

--- Returns the adapters of modules: a list of {module =, rank =, alpha =, a =, b =, of = one of our adapters}. There, a(read)
-- and b(read) return the matrices from those that read(name) returns. modules: as Modules.of returns them. adapters: as
-- lora.list does.
function saved.modules(modules, adapters, is_by_root)
  local list = {}
  for _, link in ipairs(links.of(modules, adapters)) do
    local adapter = link.adapters[1]
    if links.is_stacked(link, modules) then
      local module = link.modules[1]
      local common = links.stacked(link, is_by_root)
      local a_of, b_of = stacked_halves(link, modules.linear[module], common)
      list[#list + 1] = {module = module, rank = common.rank, alpha = common.alpha, a = a_of, b = b_of, of = adapter.name}
    else
      for _, module in ipairs(link.modules) do
        list[#list + 1] = {module = module, rank = adapter.rank, alpha = adapter.alpha, of = adapter.name,
                           a = function(read) return read(adapter.name .. ".a") end,
                           b = rows_of(adapter, modules.linear[module])}
      end
    end
  end
  return list
end

-- Returns why PEFT cannot save the module of a parameter as a whole; nil if it can.
local function obstacle(modules, name, module, has_adapter)
  if name == modules.EMBEDDING and modules.embedding then
    return "it is the embedding and the head of a tied model, which PEFT would part"
  end
  if has_adapter[module] then return ("its module '%s' has an adapter"):format(module) end
  local is_head = name == model_head.OF_LM or name == model_head.VALUE
  if is_head or name:find "^embedding%." or name:find "norm%d?%.%a+$" then return nil end
  return "only heads, norms and embeddings are modules that PEFT saves as a whole (modules_to_save)"
end

--- Returns the tensors of the modules that are trained as a whole, a list of parts as names.by_tensor gives them, and the sorted
-- names of these modules. trained: the set of our parameters. An error if one is part of another module.
function saved.whole(modules, adapters, trained)
  local has_adapter, chosen, list = {}, {}, {}
  for _, adapter in ipairs(adapters) do
    for _, module in ipairs(modules:of_rows(adapter)) do has_adapter[module] = true end
  end
  local there, tensors = {}, check.sorted_keys(modules.parts)
  for _, tensor in ipairs(tensors) do
    local part = modules.parts[tensor]
    if trained[part.parameter] then
      local module = tensor:gsub("%.%a+$", "")
      local reason = obstacle(modules, part.parameter, module, has_adapter)
      if reason then
        fail("the parameter '%s' is trained, too, and an adapter as PEFT saves it cannot have it: %s. Freeze it, or save the "
          .. "whole model", part.parameter, reason)
      end
      chosen[module], there[part.parameter] = true, true
    end
  end
  for _, name in ipairs(check.sorted_keys(trained)) do
    if not there[name] then fail("the parameter '%s' is trained, too, and no module of Hugging Face's has it", name) end
  end
  for _, tensor in ipairs(tensors) do
    local module = tensor:gsub("%.%a+$", "")
    if chosen[module] then list[#list + 1] = modules.parts[tensor] end
  end
  return list, check.sorted_keys(chosen)
end

-- Returns the dtype in which a trainer's or checkpoint's matrix is written.
local function written(dtype) return dtype == "float64" and "float64" or "float32" end

--- Returns the tensors to write, as ckpt.write_safetensors takes them, and the function that gives their values by
-- source.read. list: as saved.modules returns it. whole: as saved.whole does.
function saved.tensors(source, modules, list, whole)
  local dtypes, announced, give = {}, {}, {}
  for _, tensor in ipairs(source.tensors) do dtypes[tensor.name] = written(tensor.dtype) end
  local function add(name, shape, of, values)
    name = PREFIX .. name
    announced[#announced + 1] = {name = name, shape = shape, dtype = of}
    give[name] = function() return values(source.read):to(of):contiguous() end
  end
  for _, each in ipairs(list) do
    local part = modules.linear[each.module]
    local dtype = dtypes[each.of .. ".a"]
    add(each.module .. ".lora_A.weight", {each.rank, part.columns}, dtype, each.a)
    add(each.module .. ".lora_B.weight", {part.rows, each.rank}, dtype, each.b)
  end
  for _, part in ipairs(whole) do
    add(part.name, part.shape, dtypes[part.parameter], function(read)
      local values = read(part.parameter)
      return names.part_of(part, values:narrow(0, part.first, part.rows))
    end)
  end
  return announced, function(name) return give[name]() end
end

return saved
