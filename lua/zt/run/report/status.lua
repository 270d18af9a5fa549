--- Says whether a run goes on, from its files: run.lock names the process that holds the folder, and summary.json says that
--- run:finish() was reached.

local folder = require "zt.run.folder"
local native = require "zt.ckpt"
local text = require "zt.text"

local status = {}

local function of_holder(holder)
  if holder.pid == 0 then return {state = "running", text = "A process is taking the run's folder."} end
  local where = ("process %d on %s"):format(holder.pid, holder.host)
  if holder.is_alive then return {state = "running", text = ("It is under way: %s."):format(where)} end
  if holder.silent > 0 then
    local lost = "It was killed, or its machine cannot be reached: %s has not renewed its lock for %s."
    return {state = "killed", text = lost:format(where, text.duration(holder.silent))}
  end
  return {state = "killed", text = ("It was killed, or its script failed: %s ended without run:finish()."):format(where)}
end

--- Returns {state = "running", "ended", "killed", "stopped" or "unknown", text = a sentence about it} of the run in the folder
--- `path` with the content `record` of options.json and `summary` of summary.json.
function status.of(path, record, summary)
  local holder = native.run_holder(path)
  if holder then return of_holder(holder) end
  if not summary then
    return {state = "unknown", text = "No process holds it. It has no summary.json, so whether it reached its end is not known."}
  end
  if summary.finished and summary.started == record.started then
    local done = (folder.last_step(path) or -1) + 1
    if done >= (summary.steps or 0) then return {state = "ended", text = ("It ended at %s."):format(summary.finished)} end
    return {state = "stopped", text = ("It stopped after %d of %d steps, at %s: it was told to stop, or the script ended early.")
      :format(done, summary.steps, summary.finished)}
  end
  return {state = "stopped", text = "It stopped before run:finish(): it was told to stop, or the script ended early."}
end

return status
