--- Adds a LoRA adapter, as PEFT saves it, to the parameters of a model when they are read: W + scale * B A, in fp32. A module's
-- matrix may be some rows of a parameter of moe.gpt, by the map of its family's names (ckpt.names).

local Config = require "zt.ckpt.loading.adapter_config"
local Tensors = require "zt.ckpt.loading.adapter_tensors"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local huggingface = require "zt.ckpt.huggingface"
local log = require "zt.log"
local names = require "zt.ckpt.names"
local text = require "zt.text"

local adapter = {}

local HEAD, EMBEDDING = "lm_head.weight", "embedding.weight"

-- Returns the map of a model. options: those of moe.gpt. base: its folder.
local function map_of(options, base)
  local o = huggingface.complete(options)
  if o.seq == 0 then o.seq = 1 end -- names do not depend on it
  local is_right, _, form = pcall(huggingface.config, o)
  if is_right then return names.map(form, o), o.tied end
  fail("an adapter names the modules of a family of Hugging Face's, and the model in '%s' is of none that is known: its options "
    .. "(norm, position, activation, biases, experts) are those of no GPT-2, Llama, Mistral, Qwen2, Qwen3, Mixtral or Qwen3-MoE",
    base)
end

-- Returns the parts of a map by the names of their tensors, {name = {parameter =, first =, rows =, columns = or nil, ...}}.
local function parts_of(map)
  local parts = {}
  for _, entry in ipairs(map) do
    for _, part in ipairs(entry.parts) do
      parts[part.name] = {parameter = entry.name, first = part.first, rows = part.rows, shape = part.shape,
                          transposed = part.transposed, columns = #entry.shape > 1 and entry.shape[#entry.shape] or nil}
    end
  end
  return parts
end

-- Returns whether LoRA may change a part as that of a linear layer.
local function is_linear(part)
  return part and part.columns ~= nil and #part.shape == 2 and not part.parameter:find "^embedding%."
end

-- An error if the adapter has modules or tensors that the model lacks, with the names of both.
local function check_names(tensors, parts)
  local lacking, there = {}, {}
  for module in pairs(tensors.halves) do
    if not is_linear(parts[module .. ".weight"]) then lacking[#lacking + 1] = module end
  end
  for name in pairs(tensors.whole) do
    if not parts[name] then lacking[#lacking + 1] = name end
  end
  if #lacking == 0 then return end
  for name, part in pairs(parts) do
    if is_linear(part) then there[#there + 1] = name:gsub("%.weight$", "") end
  end
  table.sort(lacking)
  table.sort(there)
  fail("%s changes modules that the model lacks (%d): %s. The model has the linear layers %s: give the adapter of this model, or "
    .. "the base of this adapter", tensors.path, #lacking, text.some(lacking), text.some(there))
end

-- The head of a tied model is the embedding's weight. Its whole tensors may be in the file under both names if they are equal;
-- anything else would untie them.
local function check_tied(tensors, embedding)
  local whole, path = tensors.whole, tensors.path
  local found = whole[HEAD] or whole[embedding]
  if whole[HEAD] and whole[embedding] and core.op "equal"(tensors:read(whole[HEAD]), tensors:read(whole[embedding])) then
    whole[HEAD], found = nil, nil
  end
  for _, name in ipairs{HEAD, embedding} do
    local pair = tensors.halves[name:gsub("%.weight$", "")]
    found = found or (pair and pair.A)
  end
  if not found then return end
  fail("%s: '%s' changes the head or the embedding, which are one matrix in this model (tied), so they would have to differ. "
    .. "Merge the adapter by PEFT and save the model with tie_word_embeddings = false, or train it without these modules", path,
    found.name)
end

-- An error unless a tensor has the shape that the model needs.
local function check_shape(tensors, tensor, shape, why)
  if text.shape(tensor.shape) == text.shape(shape) then return end
  fail("%s: '%s' is %s instead of %s, %s: look for the files that belong together", tensors.path, tensor.name,
    text.shape(tensor.shape), text.shape(shape), why)
end

-- Returns what changes for each parameter: {parameter = {{part =, whole = tensor or nil, pair = or nil, scale = or nil}, ...}},
-- whole tensors first. Checks all shapes.
local function changes_of(tensors, config, parts)
  local changes = {}
  local function add(part, change)
    change.part = part
    changes[part.parameter] = changes[part.parameter] or {}
    table.insert(changes[part.parameter], change)
  end
  for _, name in ipairs(check.sorted_keys(tensors.whole)) do
    check_shape(tensors, tensors.whole[name], parts[name].shape, "as in the model")
    add(parts[name], {whole = tensors.whole[name]})
  end
  for _, module in ipairs(check.sorted_keys(tensors.halves)) do
    local part, pair, rank = parts[module .. ".weight"], tensors.halves[module], config:rank_of(module)
    local why = ("by the rank of adapter_config.json (r, rank_pattern) and the model's matrix [%d, %d]"):format(part.rows,
      part.columns)
    check_shape(tensors, pair.A, {rank, part.columns}, why)
    check_shape(tensors, pair.B, {part.rows, rank}, why)
    add(part, {pair = pair, scale = config:scale_of(module)})
  end
  return changes
end

-- Returns the values of a parameter after its changes, in fp32 or fp64.
local function changed(tensors, list, values)
  local dtype = values:dtype() == "float64" and "float64" or "float32"
  local sums = values:to(dtype) -- may be `values` itself, which the caller does not use again
  local columns = list[1].part.columns
  local matrix = columns and sums:reshape{-1, columns} or sums
  for _, change in ipairs(list) do
    core.scope(function()
      local part = change.part
      local rows = matrix:narrow(0, part.first, part.rows)
      if change.whole then
        local whole = tensors:read(change.whole)
        rows:copy_((part.transposed and whole:t() or whole):reshape{part.rows, columns})
      else
        local a, b = tensors:read(change.pair.A):to(dtype), tensors:read(change.pair.B):to(dtype)
        rows:addmm_(b, a, {alpha = change.scale})
      end
    end)
  end
  return sums
end

-- Reads and checks an adapter. Returns a function(name, values) that returns the changed values of a parameter.
local function open(folder, options, base)
  if not core.exists(folder) then fail("there is no folder '%s': give the folder of a LoRA adapter", folder) end
  local config, tensors = Config.read(folder), Tensors.open(folder)
  local map, is_tied = map_of(options, base)
  if is_tied then
    for _, entry in ipairs(map) do
      if entry.name == EMBEDDING then check_tied(tensors, entry.parts[1].name) end
    end
  end
  local parts = parts_of(map)
  check_names(tensors, parts)
  local changes = changes_of(tensors, config, parts)
  if not tensors:check_values() and core.world.rank == 0 then
    log.warn("%s: each product B A is zero, so the adapter changes nothing: was it saved before the training?", tensors.path)
  end
  return function(name, values) return changes[name] and changed(tensors, changes[name], values) or values end
end

--- Makes an opened model (infer's model.lua) read parameters with the adapter of a folder added. base: the model's folder, for
-- messages.
function adapter.add(opened, folder, base)
  if opened.weights then
    fail("the matrices in '%s' are packed already, as %s, and the sums with the adapter's would be rounded a second time: give "
      .. "the model with plain weights, and pack the sums by the option weights", base, opened.weights.format)
  end
  local change, read = open(folder, opened.options, base), opened.read
  opened.load_parts = nil
  if not read then return end -- of a plan
  function opened.read(place, name) return change(opened.names[place], read(place, name)) end
end

return adapter
