--- What a run of a case computes: losses, norms, statistics, gradients, weights, evaluations and inferences.
local zt = require "zt"

local outcomes = {}

function outcomes.new() return {steps = {}, gradients = {}, evaluations = {}, inferred = {}, generated = {}} end

--- Returns a new name for the folder of a checkpoint, equal on all ranks of `mesh`.
function outcomes.folder(mesh)
  local name = os.tmpname()
  os.remove(name)
  return zt.world.size == 1 and name or mesh:world():gather_values(name)[1]
end

--- Removes the folder when all ranks have loaded from it.
function outcomes.remove_folder(folder, mesh)
  if zt.world.size > 1 then mesh:world():barrier() end
  if zt.world.rank > 0 then return end
  require("zt.ckpt").remove_all(folder)
  os.remove(folder .. "/latest")
  assert(os.remove(folder))
end

-- Returns the tensors `names` as one vector, and their places in it: {{name =, first =, numel =}, ...}.
local function flat(trainer, names, read)
  local parts, places, first = {}, {}, 0
  for i, name in ipairs(names) do
    parts[i] = read(trainer, name):reshape{-1}:to "float64":to "cpu"
    places[i] = {name = name, first = first, numel = parts[i]:numel()}
    first = first + places[i].numel
  end
  return zt.cat(parts, 0), places
end

local function trainable(model)
  local names = {}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.trainable then names[#names + 1] = parameter.name end
  end
  return names
end

-- Statistics that are numbers of things: equal on every layout.
local COUNTED = {load = true, dropped = true, tokens = true, positive = true}

-- Statistics of the machine: other ones in each run.
local MEASURED = {seconds = true, bytes_sent = true}

-- Returns the numbers of things, and the other statistics, which are sums or means.
local function split(stats)
  local counted, means = {}, {}
  for name, value in pairs(stats) do
    local last = name:match "[^.]*$"
    if COUNTED[last] then counted[name] = value
    elseif not MEASURED[last] then means[name] = type(value) == "table" and value or {value} end
  end
  return counted, means
end

--- Adds the result of a step and its gradient.
function outcomes.add_step(outcome, result, run)
  local terms = {}
  for name, value in pairs(result.terms) do terms[name] = value end
  local counted, means = split(result.stats)
  outcome.steps[#outcome.steps + 1] = {
    loss = result.loss, norm = result.grad_norm, terms = terms, stats = counted, means = means, tokens = result.tokens,
  }
  outcome.gradients[#outcome.gradients + 1], outcome.trainable = flat(run.trainer, trainable(run.model), run.trainer.gradient)
end

--- Sets the values that the parameters begin with.
function outcomes.begin(outcome, run)
  outcome.start, outcome.parameters = flat(run.trainer, run.trainer:parameters(), run.trainer.master)
end

--- Returns the outcome of a run that has ended.
function outcomes.finish(outcome, run)
  outcome.weights, outcome.parameters = flat(run.trainer, run.trainer:parameters(), run.trainer.master)
  return outcome
end

--- Returns the name of the first tensor of the state that differs between two trainers of one model, or nil.
function outcomes.first_difference(a, b)
  for _, name in ipairs(a:parameters()) do
    if not a:master(name):to "cpu":equal(b:master(name):to "cpu") then return name end
    local states, loaded = a:optimizer_state(name), b:optimizer_state(name)
    for key, values in pairs(states) do
      if not loaded[key]:to "cpu":equal(values:to "cpu") then return name .. " " .. key end
    end
  end
  if a.global_step ~= b.global_step then return "global_step" end
end

local function shown(number) return ("%.17g"):format(number) end

--- Prints an outcome on rank 0.
function outcomes.print(outcome)
  if zt.world.rank > 0 then return end
  for i, step in ipairs(outcome.steps) do
    print(("step %d: loss %s, norm %s"):format(i - 1, shown(step.loss), shown(step.norm)))
    for _, place in ipairs(outcome.trainable) do
      local gradient = outcome.gradients[i]:narrow(0, place.first, place.numel)
      print(("  gradient of %s: norm %s, first %s"):format(place.name, shown(gradient:norm():item()), shown(gradient[0]:item())))
    end
  end
  for _, loss in ipairs(outcome.evaluations) do print("evaluation " .. shown(loss)) end
  for _, each in ipairs(outcome.inferred) do print("inference, sum of logits " .. shown(each.logits:sum():item())) end
end

return outcomes
