-- The savers of this process: one per mesh, which reuses its write layout and its memory from save to save.

local native = require "zt.ckpt"

local savers = {}
local M = {}

--- The saver of this mesh (nil: this process alone). Collective when it is made.
function M.of(mesh)
  for _, entry in ipairs(savers) do
    if entry.mesh == mesh then return entry.saver end
  end
  savers[#savers + 1] = {mesh = mesh, saver = native.saver(mesh)}
  return savers[#savers].saver
end

--- Waits for all saves that are being written, of whatever mesh, and raises an error of theirs. Collective.
function M.wait()
  for _, entry in ipairs(savers) do entry.saver:wait() end
end

return M
