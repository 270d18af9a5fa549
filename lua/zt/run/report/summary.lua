--- Writes RUN/summary.json: what ztoolkit report shows beside the metrics. Rank 0 writes it at the first log, with its own
--- memory, and at the end of the run, with that of all ranks:
---
---   {"started": as in options.json, "steps": the total, "finished": the time of run:finish(), "report": trainer:report(),
---    "memory": [{KIND: {"predicted": bytes, "measured": bytes}}, ...] by rank; -1 is not known}

local core = require "zt.core"
local folder = require "zt.run.folder"
local on_rank_zero = require "zt.on_rank_zero"

local summary = {}

local function write(run, memory, finished)
  core.write_file(run.path .. "/summary.json", core.json.encode{
    started = folder.started(run.path), steps = run.steps, finished = finished, memory = memory,
    report = run.trainer and run.trainer:report(),
  } .. "\n")
end

--- Writes the file of a run that goes on. Called by rank 0.
function summary.begin(run)
  write(run, run.trainer and {run.trainer:memory()})
end

--- Writes the file of a run that ends. Collective.
function summary.finish(run)
  local own = run.trainer and run.trainer:memory()
  local memory = own and (run.ranks and run.ranks:gather_values(own) or {own})
  on_rank_zero(run.ranks, function()
    if run.is_writer then write(run, memory, os.date "!%Y-%m-%dT%H:%M:%SZ") end
  end)
end

return summary
