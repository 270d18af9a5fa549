-- ztoolkit ckpt ls: lists the checkpoints of one run, or of all runs in a folder.

local cli = require "zt.cli"
local core = require "zt.core"
local fs = require "zt.fs"
local native = require "zt.ckpt"
local needed_folder = require "zt.ckpt.cmd.needed_folder"
local text = require "zt.text"

-- Returns losses from metrics.jsonl, by the number of steps done: the loss of the last of these steps.
local function losses_of(path)
  local losses = {}
  if native.kind(path .. "/metrics.jsonl") ~= "file" then return losses end
  for line in fs.read(path .. "/metrics.jsonl"):gmatch "[^\n]+" do
    local is_whole, values = pcall(core.json.decode, line)
    if is_whole and type(values.loss) == "number" then losses[values.step + 1] = values.loss end
  end
  return losses
end

local function rows_of(run, rows)
  local latest, losses = native.latest(run), losses_of(run)
  for _, entry in ipairs(native.list(run)) do
    local path = run .. "/" .. entry.name
    local loss = losses[entry.step]
    rows[#rows + 1] = {path, text.bytes(native.folder_bytes(path)), loss and ("%.4f"):format(loss) or "",
                       entry.name == latest and "latest" or ""}
  end
  for _, name in ipairs(native.partial(run)) do
    local path = run .. "/" .. name
    rows[#rows + 1] = {path, text.bytes(native.folder_bytes(path)), "", "incomplete, or being written"}
  end
end

return function()
  local o = cli{
    name = "ckpt ls", usage = "ztoolkit ckpt ls", about = "Lists checkpoints with sizes and the losses of their last steps.",
    options = {}, positional = {{"folder", "a run's folder, or one that holds runs"}},
  }
  local folder = needed_folder("ckpt ls", o.folder)
  local rows = {{"checkpoint", "size", "loss", ""}}
  rows_of(folder, rows)
  for _, name in ipairs(native.folders(folder)) do
    if not name:find "^step_" then rows_of(folder .. "/" .. name, rows) end
  end
  if #rows == 1 then print(("no checkpoints in '%s'"):format(o.folder)) else print(text.columns(rows)) end
end
