--- moe.gpt(options, of_run): a model of nn.gpt in which blocks have experts, from a table without functions, such as a JSON file
-- holds.
--
--   moe.gpt({layers = 4, hidden = 64, ..., moe = {experts = 8, ffn = 128, top_k = 2, blocks = {1, 3}}},
--           {axis = mesh.ep, tensor = mesh.tp})
--
-- `moe` has the options of moe.layers, and `blocks`, the list of the blocks that have experts, from 0; without it, all have. The
-- activation, biases and initial values of the experts are by default those of the model. of_run: options of moe.layers that
-- belong to the run, such as `axis`, and those of nn.gpt that say how it is cut, such as `tensor`. Without `moe`, the model is
-- that of nn.gpt.

local check = require "zt.check"
local fail = require "zt.fail"
local layers = require "zt.moe.layers"
local nn = require "zt.nn"

local OF_RUN = {
  {"axis", "Axis", "the mesh axis whose ranks share the experts"},
  {"dispatcher", "string", "how tokens are sent"},
  {"overlap", "boolean", "send while other actions run; by default over nccl"},
  {"transport", "string", "dtype in which tokens are sent, by default their own"},
  {"planned_rows", "number", "of plans: rows of a rank as a multiple of balanced routing's", above = 0},
  {"tensor", "Axis", "as in nn.gpt; the experts' MLPs are cut, too"},
  {"tp_dtype", "string", "as in nn.gpt"},
  {"sequence_parallel", "boolean", "as in nn.gpt"},
  {"context", "table", "as in nn.gpt; routers sum over its axis what they need of whole samples"},
}
-- Options of nn.gpt that belong to the run.
local CUTS = {"tensor", "tp_dtype", "sequence_parallel", "context"}

-- Returns the set of blocks with experts, from 0.
local function blocks_of(given, count)
  local set = {}
  if given == nil then
    for block = 0, count - 1 do set[block] = true end
    return set
  end
  if type(given) ~= "table" then fail("moe.gpt: moe.blocks must be a list of blocks, from 0, got %s", tostring(given)) end
  if #given == 0 then fail "moe.gpt: moe.blocks names no block: leave moe out for a model without experts" end
  for _, block in ipairs(given) do
    if type(block) ~= "number" or block ~= math.floor(block) or block < 0 or block >= count then
      fail("moe.gpt: moe.blocks names block %s, but the model's %d blocks are 0 to %d", tostring(block), count, count - 1)
    end
    set[block] = true
  end
  return set
end

-- Returns what the options of nn.gpt mean for an MLP.
local function defaults(o)
  local branch = o.moe.shared or o.moe.residual
  local has_mlps = o.moe.expert == nil or (branch and branch.ffn ~= nil)
  local is_llama, std = o.family == "llama", o.std or 0.02
  local function default(value, otherwise) if value == nil then return otherwise end return value end
  local is_scaled = default(o.scale_residual, not is_llama)
  local of_layers = {hidden = o.hidden, std = std}
  if not has_mlps then return of_layers end
  of_layers.residual_std = is_scaled and std / math.sqrt(2 * o.layers) or std
  of_layers.activation = default(o.activation, is_llama and "swiglu" or "gelu_tanh")
  of_layers.bias = default(o.bias, not is_llama)
  return of_layers
end

-- Calls nn.gpt. An error of `layers_of`, which it calls for each block, names the option `moe` instead of that function.
local function model_of(options, layers_of)
  local problem
  options.mlp = function(block)
    local is_done, result = pcall(layers_of, block)
    if is_done then return result end
    problem = tostring(result):gsub("^[^\n:]+:%d+: ", ""):gsub("\nstack traceback:.*", "")
    if not problem:find "^moe%.gpt: " then problem = ("moe.gpt: the option moe, for block %d: %s"):format(block, problem) end
    error(result, 0)
  end
  local is_done, model = pcall(nn.gpt, options)
  if problem then fail("%s", problem) end
  if not is_done then error(model, 0) end
  return model
end

-- Returns the options to record: those that say what the model is, not which ranks have its experts.
local function record_of(given)
  local record, of_moe = {}, {}
  for key, value in pairs(given) do record[key] = value end
  for key, value in pairs(given.moe) do of_moe[key] = value end
  record.moe, of_moe.axis = of_moe, nil
  return record
end

-- Returns the options of the model, and those that say how it is cut, from both tables. Leaves the others in `run_options`.
local function divided(given, run_options)
  local model, cuts = {}, {}
  for key, value in pairs(given) do model[key] = value end
  for _, name in ipairs(CUTS) do
    if model[name] ~= nil and run_options[name] ~= nil then
      fail("moe.gpt: %s is given in both tables: give it in one of them", name)
    end
    if model[name] ~= nil then cuts[name] = model[name] else cuts[name] = run_options[name] end
    model[name], run_options[name] = nil, nil
    if type(given.moe) == "table" and given.moe[name] ~= nil then
      fail("moe.gpt: moe.%s belongs to the run, not to the model: give %s in the second table", name, name)
    end
  end
  return model, cuts
end

local function gpt(given, of_run)
  local run_options = check.options("moe.gpt.of_run", OF_RUN, of_run)
  if type(given) ~= "table" then return nn.gpt(given) end
  local model, cuts = divided(given, run_options)
  local options, blocks = {}, nil
  for key, value in pairs(model) do options[key] = value end
  for key, value in pairs(cuts) do options[key] = value end
  if given.moe == nil then return nn.gpt(options) end
  if type(given.moe) ~= "table" or given.mlp ~= nil then
    fail "moe.gpt: give either `moe`, a table of options of moe.layers, or the function `mlp`"
  end
  options.moe, options.made_from = nil, record_of(model)
  return model_of(options, function(block)
    blocks = blocks or blocks_of(given.moe.blocks, given.layers)
    if not blocks[block] then return nil end
    local of_layers = defaults(given)
    if of_layers.residual_std then of_layers.tensor, of_layers.tp_dtype = cuts.tensor, cuts.tp_dtype end -- it has MLPs
    for key, value in pairs(given.moe) do of_layers[key] = value end
    for key, value in pairs(run_options) do of_layers[key] = value end
    of_layers.context, of_layers.blocks = cuts.context, nil
    return layers(of_layers)
  end)
end

return gpt
