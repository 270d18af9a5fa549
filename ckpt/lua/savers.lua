-- The savers of this process: one per mesh, which reuses its write layout and its memory from save to save.

local native = require "zt.ckpt"

local savers = {}
local M = {}

local function find(mesh)
  for _, entry in ipairs(savers) do
    if entry.mesh == mesh then return entry.saver end
  end
end

--- The saver of this mesh (nil: this process alone). Collective when it is made.
function M.of(mesh)
  local saver = find(mesh)
  if not saver then
    saver = native.saver(mesh)
    savers[#savers + 1] = {mesh = mesh, saver = saver}
  end
  return saver
end

--- Waits for all saves that are being written, of whatever mesh, and raises an error of theirs. Collective.
function M.wait()
  for _, entry in ipairs(savers) do entry.saver:wait() end
end

return M
