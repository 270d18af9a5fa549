--- Writes RUN/summary.json: what ztoolkit report shows beside the metrics. Rank 0 writes it when the record of a start begins,
--- with its own memory, and at the end of the run, with that of all ranks:
---
---   {"started": as in options.json, "steps": their total, "finished": the time of run:finish(), "report": the text of
---    trainer:report(), "memory": [{KIND: {"predicted": bytes, "measured": bytes}}, ...] by rank; what is not known is missing}
---
--- It is not written between steps: once a step has shown the shapes of a batch, a trainer predicts its memory by a rehearsal of
--- the step, which takes time.

local core = require "zt.core"
local folder = require "zt.run.folder"
local log = require "zt.log"
local on_rank_zero = require "zt.on_rank_zero"

local summary = {}

-- Returns the trainer's memory and its report. A layer in Lua that cannot be rehearsed is no reason to end a run.
local function facts_of(run)
  if not run.trainer then return nil, nil end
  local is_done, memory, report = pcall(function() return run.trainer:memory(), run.trainer:report() end)
  if is_done then return memory, report end
  log.warn("%s/summary.json lacks the memory of rank %d: %s", run.path, core.world.rank, tostring(memory))
  return {}, nil
end

local function write(run, memory, report, finished)
  core.write_file(run.path .. "/summary.json", core.json.encode{
    started = run.start.started, steps = run.steps, finished = finished, memory = memory, report = report,
  } .. "\n")
end

--- Writes the file of a run that begins. Called by rank 0.
function summary.begin(run)
  local memory, report = facts_of(run)
  write(run, memory and {memory}, report)
end

--- Writes the file of a run that ends. Collective.
function summary.finish(run)
  local own, report = facts_of(run)
  local memory = own and (run.ranks and run.ranks:gather_values(own) or {own})
  on_rank_zero(run.ranks, function()
    if run.is_writer then write(run, memory, report, folder.time()) end
  end)
end

return summary
