--- rlhf.report{models =, phases =}: the memory of a rank in each phase of an iteration, before anything runs.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local text = require "zt.text"

local NAME = "rlhf.report"
local SCHEMA = {
  {"models", "table", "{name = {trainer =, rows =, seq =}}: the largest batch of each", required = true},
  {"phases", "list", "{name =, runs = list of models, away = {model = what trainer:evict has taken}, engine =}", required = true},
  {"engine", "any", "the engine, whose cache is there in the phases that say so"},
}
local MODEL = {
  {"trainer", "Trainer", "the model", required = true},
  {"rows", "integer", "rows of a batch of this rank", required = true, at_least = 1},
  {"seq", "integer", "positions of a row", required = true, at_least = 1},
}
local PHASE = {
  {"name", "string", "what it is called", required = true},
  {"runs", "list", "models that compute", default = {}},
  {"away", "table", "{model = list of \"optimizer\", \"gradients\", \"parameters\"}", default = {}},
  {"engine", "boolean", "the engine has its cache", default = true},
}

-- The kinds of memory that trainer:evict takes by each of its names.
local AWAY = {optimizer = {"optimizer", "master"}, gradients = {"gradients"}, parameters = {"parameters"}}

-- Fields of batches of whole numbers, and of the losses of this module.
local WHOLE = {"tokens", "labels", "segments", "positions", "padding", "sequence", "lengths", "is_ptx"}
local FRACTIONS = {"old_logprobs", "ref_logprobs", "advantages", "correction", "returns", "old_values"}

--- Returns a batch of zeros with all fields that losses of this module read but those of distillation.
local function example(rows, seq)
  local batch = {}
  for _, name in ipairs(WHOLE) do batch[name] = core.zeros({rows, seq}, {dtype = "int64"}) end
  for _, name in ipairs(FRACTIONS) do batch[name] = core.zeros({rows, seq}, {dtype = "float64"}) end
  batch.kl = core.zeros({rows}, {dtype = "float64"})
  return batch
end

-- Returns {kind = bytes} of what this rank holds for a model, the activations of a batch apart.
local function planned(model)
  local of_rank
  for _, entry in ipairs(model.trainer:plan(example(model.rows, model.seq))) do
    of_rank = of_rank or entry
    for first, last in (entry.ranks .. ","):gmatch "(%d+)%-?(%d*)," do
      local rank = core.world.rank
      if rank >= tonumber(first) and rank <= tonumber(last ~= "" and last or first) then of_rank = entry end
    end
  end
  return of_rank.memory
end

-- Returns the bytes that a model takes in a phase, and those of its activations.
local function bytes_of(memory, phase, name)
  local bytes = 0
  for kind, of_kind in pairs(memory) do
    if kind ~= "activations" and kind ~= "total" and kind ~= "host" and kind ~= "files" then bytes = bytes + of_kind end
  end
  local taken = {}
  for _, what in ipairs(phase.away[name] or {}) do
    if not AWAY[what] then
      fail("%s: phase '%s' has '%s' of '%s' away: trainer:evict takes \"optimizer\", \"gradients\" and \"parameters\"", NAME,
           phase.name, what, name)
    end
    if taken[what] then fail("%s: phase '%s' has '%s' of '%s' away twice", NAME, phase.name, what, name) end
    taken[what] = true
    for _, kind in ipairs(AWAY[what]) do bytes = bytes - memory[kind] end
  end
  local runs = false
  for _, each in ipairs(phase.runs) do runs = runs or each == name end
  return bytes, runs and memory.activations or 0
end

-- Fails unless the names of models that a phase has are known.
local function check_names(phase, models)
  local function known(name)
    if models[name] then return end
    fail("%s: phase '%s' names the model '%s', and the models are %s", NAME, phase.name, tostring(name),
         table.concat(check.sorted_keys(models), ", "))
  end
  for _, name in ipairs(phase.runs) do known(name) end
  for name, away in pairs(phase.away) do
    known(name)
    if not check.is("list", away) then
      fail("%s: phase '%s' must give what is away of '%s' as a list, such as {\"optimizer\"}, got %s", NAME, phase.name, name,
           check.type_name(away))
    end
  end
end

local function cache_bytes(engine)
  if not engine then return 0 end
  if check.type_name(engine) ~= "an InferenceEngine" then
    fail("%s.engine must be an engine of infer.engine, got %s", NAME, check.type_name(engine))
  end
  return engine:stats().cache_bytes
end

-- Returns the bytes of a phase: {name =, models = {name = bytes}, activations =, cache =, total =}.
local function phase_bytes(phase, memory, cache)
  local row = {name = phase.name, models = {}, activations = 0, cache = phase.engine and cache or 0}
  row.total = row.cache
  for name, of_model in pairs(memory) do
    local bytes, activations = bytes_of(of_model, phase, name)
    row.models[name], row.total = bytes, row.total + bytes
    row.activations = math.max(row.activations, activations) -- one model computes at a time
  end
  row.total = row.total + row.activations
  return row
end

--- Returns {phases = list of {name, models = {name = bytes}, activations, cache, total}, text = a table for people}: what this
-- rank holds in each phase. Activations are those of the largest of the models that run, in a training step if it has an
-- optimizer. Collective.
local function report(value)
  local o = check.options(NAME, SCHEMA, value)
  local memory, phases = {}, {}
  for _, name in ipairs(check.sorted_keys(o.models)) do
    memory[name] = planned(check.options(("%s.models.%s"):format(NAME, name), MODEL, o.models[name]))
  end
  local names, cache = check.sorted_keys(memory), cache_bytes(o.engine)
  local lines = {{"phase", unpack(names)}}
  for _, title in ipairs{"activations", "cache", "total"} do table.insert(lines[1], title) end
  for place, given in ipairs(o.phases) do
    local phase = check.options(("%s.phases[%d]"):format(NAME, place), PHASE, given)
    check_names(phase, memory)
    local row = phase_bytes(phase, memory, cache)
    phases[place] = row
    local line = {row.name}
    for _, name in ipairs(names) do line[#line + 1] = text.bytes(row.models[name]) end
    for _, title in ipairs{"activations", "cache", "total"} do line[#line + 1] = text.bytes(row[title]) end
    lines[#lines + 1] = line
  end
  return {phases = phases, text = text.columns(lines)}
end

return report
