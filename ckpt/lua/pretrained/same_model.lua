--- Tells whether models compute the same from the same parameters, by their options.

local check = require "zt.check"
local fail = require "zt.fail"
local huggingface = require "zt.ckpt.huggingface"
local text = require "zt.text"

local same_model = {}

local EMBEDDING, HEAD = "embedding.weight", "head.weight"

-- Options of nn.gpt and moe.gpt that are no part of what a model computes from its parameters, or that its layout decides. A tied
-- head may be a matrix of its own in an engine. Without labels, a head of log-probabilities gives the logits of a language model;
-- a value head has other parameters.
local WITHOUT_EFFECT = {}
for word in ([[tensor sequence_parallel context tp_dtype dropout ignore_index loss scale_residual seed std tile recompute tied seq
    axis dispatcher overlap losses noise parts grouped_gemm residual_std head_tile mlp_tile defined_at
    init transport planned_rows batch_axes bias_rate jitter mask made_from head temperature entropy]]):gmatch "%S+" do
  WITHOUT_EFFECT[word] = true
end

--- Returns a table of options as a text that is equal for equal tables. Leaves out objects and functions.
function same_model.text_of(options)
  local parts = {}
  for key, value in pairs(options) do
    if type(value) == "table" then value = "{" .. same_model.text_of(value) .. "}" end
    local is_plain = type(value) ~= "userdata" and type(value) ~= "function"
    if is_plain then parts[#parts + 1] = ("%s = %s"):format(tostring(key), tostring(value)) end
  end
  table.sort(parts)
  return table.concat(parts, ", ")
end

-- Returns those options that decide what a model computes: values by name, or texts by names such as "rope_scaling.factor".
local function function_of(options)
  local of_function = {}
  for key, value in pairs(options) do
    if not WITHOUT_EFFECT[tostring(key):match "^[%w_]+"] then
      of_function[key] = type(value) == "table" and function_of(value) or value
    end
  end
  return of_function
end

-- Adds the texts of options, and of those in their tables, by paths such as "moe.top_k".
local function add_texts(texts, path, options)
  for key, value in pairs(options) do
    local name = path .. tostring(key)
    if type(value) == "table" then
      add_texts(texts, name .. ".", value)
    elseif type(value) ~= "userdata" and type(value) ~= "function" then
      texts[name] = tostring(value)
    end
  end
  return texts
end

--- Returns in which options that decide what a model computes two models (of nn.gpt or moe.gpt) differ, adapters apart: a list of
-- {name =, from =, to =}, sorted; the texts are nil where there is no such option. Empty if one does not tell its options.
function same_model.differences(from, to)
  if not from.options or not to.options then return {} end
  local function texts_of(model)
    local options = function_of(huggingface.complete(model.options))
    options.lora, options.family = nil, nil -- the family gives defaults, which are filled in
    if options.position ~= "rotary" then options.rope_base, options.rope_scaling = nil, nil end
    return add_texts({}, "", options)
  end
  local theirs, mine, names, found = texts_of(from), texts_of(to), {}, {}
  for _, texts in ipairs{theirs, mine} do for name in pairs(texts) do names[name] = true end end
  for name in pairs(names) do
    if theirs[name] ~= mine[name] then found[#found + 1] = {name = name, from = theirs[name], to = mine[name]} end
  end
  table.sort(found, function(a, b) return a.name < b.name end)
  return found
end

local function shapes_of(model)
  local shapes = {}
  for _, parameter in ipairs(model:parameters()) do shapes[parameter.name] = text.shape(parameter.shape) end
  return shapes
end

-- Fails unless two descriptions (Model.description), without a table of options for nn.gpt, are of models that compute the same.
local function check_layers(from, to, what)
  local function compare(place, theirs, mine)
    local all = {}
    for _, options in ipairs{theirs, mine} do for name in pairs(options) do all[#all + 1] = name end end
    table.sort(all)
    for _, name in ipairs(all) do
      if theirs[name] ~= mine[name] then
        fail("%s: the models compute other functions, so give a trainer of the same model: %s has %s = %s in the engine's model, "
          .. "and %s in the trainer's", what, place, name, mine[name] or "nothing", theirs[name] or "nothing")
      end
    end
  end
  compare("the model", function_of(from.options), function_of(to.options))
  compare("the model", {["the number of layers"] = #from.layers}, {["the number of layers"] = #to.layers})
  for place, layer in ipairs(to.layers) do
    local other, name = from.layers[place], "layer '" .. layer.name .. "'"
    compare(name, {kind = other.kind}, {kind = layer.kind})
    compare(name, function_of(other.options), function_of(layer.options))
  end
end

--- Fails unless the model `to` can take the parameters of the model `from` and then computes the same. what: begins the message.
function same_model.check(from, to, what)
  local wanted, there = shapes_of(to), shapes_of(from)
  if there[HEAD] and wanted[EMBEDDING] and not wanted[HEAD] then
    fail("%s: the trainer's head has a matrix of its own, and the head of the engine's model is the weight of its embedding: "
      .. "give a trainer of a model with tied = true", what)
  end
  if wanted[HEAD] and not there[HEAD] then there[HEAD] = there[EMBEDDING] end
  for _, name in ipairs(check.sorted_keys(wanted)) do
    if there[name] ~= wanted[name] then
      fail("%s: the engine's model has '%s' of %s, and the trainer's %s: give a trainer of the same model", what, name,
           wanted[name], there[name] and "has it of " .. there[name] or "has none")
    end
  end
  for _, name in ipairs(check.sorted_keys(there)) do
    if not wanted[name] then
      fail("%s: the trainer's model has '%s', and the engine's has not: give a trainer of the same model", what, name)
    end
  end
  if not from.options or not to.options then return check_layers(from.description, to.description, what) end
  local mine = same_model.text_of(function_of(huggingface.complete(to.options)))
  local other = same_model.text_of(function_of(huggingface.complete(from.options)))
  if mine ~= other then
    fail("%s: the models compute other functions, so give a trainer of the same model. The engine's: %s. The trainer's: %s", what,
         mine, other)
  end
end

return same_model
