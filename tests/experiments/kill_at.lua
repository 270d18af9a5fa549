-- Runs a script of scripts/exp/rlhf and kills ranks with SIGKILL a moment after one of its phases has begun.
--
--   ztoolkit run kill_at.lua PHASE CALL RANK DELAY MARK SCRIPT [arguments...]
--
-- PHASE: rollout, score, advantages, update or save. CALL: which call of it, from 1. RANK: the rank, or "all". DELAY: in seconds.
-- MARK: the path of a file that is written just before.
local zt = require "zt"
local ckpt, rlhf = require "zt.ckpt", require "zt.rlhf"

local phase, wanted, victim, delay, mark, script = arg[1], tonumber(arg[2]), arg[3], arg[4], arg[5], arg[6]
local calls = 0

local function begin()
  calls = calls + 1
  if calls ~= wanted or victim ~= "all" and tonumber(victim) ~= zt.world.rank then return end
  local own = zt.fs.read("/proc/self/stat"):match "^%d+"
  zt.write_file(mark, phase)
  os.execute(("(sleep %s; kill -9 %s) >/dev/null 2>&1 &"):format(delay, own))
end

local home = phase == "save" and ckpt or rlhf
local name = phase == "update" and "batches" or phase
local plain = home[name]
rawset(home, name, function(...)
  begin()
  return plain(...)
end)

local words = {[0] = script}
for i = 7, #arg do words[i - 6] = arg[i] end
rawset(_G, "arg", words)
dofile(script)
