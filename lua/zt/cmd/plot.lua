-- ztoolkit plot: draws the plots of runs again, from what they have recorded so far: also of runs that go on or were killed.
--
--   ztoolkit plot runs/gpt       writes runs/gpt/loss.svg and, for a model with experts, runs/gpt/expert_load.svg
local zt         = require "zt"
local command    = require "zt.command"
local fail       = require "zt.fail"
local folder     = require "zt.run.folder"
local new_curves = require "zt.run.curves"

local options = zt.cli {
  name = "plot", usage = "ztoolkit plot",
  about = "Draws loss.svg and expert_load.svg of runs from their records, also while a run goes on or after it was killed.",
  positional = {{"runs", "the folders of runs", at_least = 1}},
}

local function draw(path)
  if not zt.exists(path) then fail("there is no folder '%s': give the folder of a run, such as runs/gpt", path) end
  if not zt.exists(path .. "/metrics.jsonl") then
    fail("'%s' has no metrics.jsonl: give the folder of a run, such as runs/gpt. A run has the file from its first run:log on",
         path)
  end
  local start = folder.start(path) or {}
  local curves = new_curves(start.show or {})
  for values in folder.records(path) do curves:add(values.step, values) end
  for _, file in ipairs(curves:write(path, path:gsub("/+$", ""):match "[^/]+$" or path)) do print("wrote " .. file) end
end

command("plot", function()
  for _, path in ipairs(options.runs) do draw(path) end
end)
