--- Ends a dry run where its first step would begin. `ztoolkit plan` prints the plan of each kind of rank: what these ranks would
-- hold, do and send. `ztoolkit run --dry` prints the trainer's report.

local check = require "zt.check"
local core = require "zt.core"
local picture = require "zt.run.picture"
local text = require "zt.text"

local MEMORY = {"parameters", "master", "gradients", "optimizer", "staging", "buffers", "buckets", "cache",
  "activations",
  "total", "host", "files"} -- the last two are no part of the total

-- Joins show(name, count) of every entry, in the order of the names.
local function sorted(counts, show)
  local cells = {}
  for index, name in ipairs(check.sorted_keys(counts)) do cells[index] = show(name, counts[name]) end
  return #cells > 0 and table.concat(cells, ", ") or "nothing"
end

local function lines_of(kind)
  local rows = {}
  for _, name in ipairs(MEMORY) do
    if kind.memory[name] then rows[#rows + 1] = {"  " .. name, text.bytes(kind.memory[name])} end
  end
  local assumed = {}
  for index, sentence in ipairs(kind.assumptions) do assumed[index] = "\n  assumes  " .. sentence end
  return ("%s %s%s\n%s\n  actions  %s\n  sends    %s\n  along    %s%s"):format(
    kind.count == 1 and "rank" or "ranks", kind.ranks, kind.count > 1 and (" (%d alike)"):format(kind.count) or "",
    text.columns(rows),
    sorted(kind.actions, function(name, count) return ("%d %s"):format(count, name) end),
    sorted(kind.sent, function(name, bytes) return ("%s %s per step"):format(name, text.bytes(bytes)) end),
    sorted(kind.along, function(axis, bytes) return ("%s %s"):format(axis, text.bytes(bytes)) end),
    table.concat(assumed))
end

-- Returns the plan as text. `kinds` is the result of trainer:plan(batch), `ranks` the number of ranks.
local function plan_text(kinds, ranks)
  local each = core.world.ranks_per_node
  local parts = {("%d rank%s, %d per machine, bytes per rank"):format(ranks, ranks == 1 and "" or "s", math.min(each, ranks))}
  for _, kind in ipairs(kinds) do parts[#parts + 1] = lines_of(kind) end
  return table.concat(parts, "\n\n")
end

-- Returns one table per kind of rank, without the single actions.
local function summaries(simulation)
  local ranks = {}
  for index, rank in ipairs(simulation.ranks) do
    rank.actions = nil
    ranks[index] = rank
  end
  return ranks
end

-- Simulates the step with each schedule of the list instead of its own. Returns one table per schedule: the times of the rank
-- that is worst in each, or what is wrong with the schedule here.
local function compare(trainer, batch, output, costs)
  local pipe = #output.compared > 0 and require "zt.pipe"
  local rows = {}
  for index, name in ipairs(output.compared) do
    local program = pipe.with_schedule(trainer.program, name)
    local is_done, result = pcall(trainer.simulate, trainer, batch, costs, program)
    local row = {schedule = name, error = not is_done and result:gsub("^%S+:%d+: ", "") or nil}
    for _, rank in ipairs(is_done and result.ranks or {}) do
      row.seconds = result.seconds
      for _, key in ipairs{"span_bubble", "barrier_bubble", "peak_bytes"} do
        row[key] = math.max(row[key] or 0, rank[key])
      end
    end
    rows[index] = row
  end
  return rows
end

-- Returns the comparison as a table for people: the shortest step first.
local function comparison_text(compared)
  local rows, notes = {{"schedule", "step ms", "span bubble", "barrier bubble", "memory"}}, {}
  table.sort(compared, function(a, b) return (a.seconds or math.huge) < (b.seconds or math.huge) end)
  for _, row in ipairs(compared) do
    local function bubble(seconds) return ("%.3f (%4.1f%%)"):format(1e3 * seconds, 100 * seconds / row.seconds) end
    if row.error then
      notes[#notes + 1] = ("\n%s: %s"):format(row.schedule, row.error)
    else
      rows[#rows + 1] = {row.schedule, ("%.3f"):format(1e3 * row.seconds), bubble(row.span_bubble), bubble(row.barrier_bubble),
                         text.bytes(row.peak_bytes)}
    end
  end
  return "of the rank that is worst in each, with the same micro-batches:\n" .. text.columns(rows) .. table.concat(notes)
end

-- Prints the plan as text, or writes it as JSON to the descriptor that the host reserves for it. The script's own prints go
-- elsewhere.
local function write(kinds, simulation, compared, output)
  local ranks = core.world.size
  if not output.is_json then
    print(plan_text(kinds, ranks))
    if simulation then print("\n" .. tostring(simulation)) end
    if #compared > 0 then print(comparison_text(compared)) end
    return
  end
  local simulated = simulation
    and {seconds = simulation.seconds, work = simulation.work, ranks = summaries(simulation)}
  local out = assert(io.open(("/dev/fd/%d"):format(output.descriptor), "a"))
  assert(out:write(core.json.encode{ranks = ranks, kinds = kinds, simulation = simulated, compared = compared}, "\n"))
  assert(out:close())
end

-- Returns the costs that the command line asks for; nil if it asks for no simulation.
local function costs_of(output)
  if output.costs == "" then return nil end
  local costs = core.costs(output.costs)
  local machine, ranks = costs.hardware, output.ranks_per_machine
  if ranks > 0 then
    local cards = machine.cards_per_machine * ranks / machine.ranks_per_machine -- as many for each rank as the named machine has
    machine.cards_per_machine = machine.cards_per_machine > 0 and math.max(1, math.floor(cards + 0.5)) or 0
    machine.ranks_per_machine = ranks
  end
  return costs
end

-- Simulates the step if there are costs, and writes its picture and trace.
local function simulate(trainer, batch, output, costs)
  if not costs then return nil end
  if output.picture ~= "" then picture.check(output.picture) end
  local simulation = trainer:simulate(batch, costs)
  if output.picture ~= "" then picture.write(simulation, output.picture) end
  if output.trace ~= "" then
    simulation:write_trace(output.trace)
    print("wrote " .. output.trace)
  end
  return simulation
end

-- Returns a step's whole batch, made of `parts` copies of `batch`. Other values are returned unchanged: the trainer refuses them.
local function whole_batch(batch, parts)
  if parts == 1 or type(batch) ~= "table" then return batch end
  local whole = {}
  for name, field in pairs(batch) do
    local has_rows, rank = pcall(function() return field:dim() end)
    local copies = {}
    for part = 1, parts do copies[part] = field end
    whole[name] = has_rows and rank > 0 and core.cat(copies) or field
  end
  return whole
end

-- Prints the plan or the report and ends the process with status 0. Called in a dry run where the first step would begin.
local function finish(trainer, batch, parts)
  local output = require("zt.host").plan()
  if output then
    local whole, costs = whole_batch(batch, parts), costs_of(output)
    write(trainer:plan(whole), simulate(trainer, whole, output, costs), compare(trainer, whole, output, costs), output)
  else
    print(trainer:report())
  end
  os.exit(0)
end

core.set_hook("dry_step", finish)
