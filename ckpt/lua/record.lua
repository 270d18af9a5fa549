--- Returns the record of a run that a checkpoint keeps for people: script, options, versions, mesh, program.

local core = require "zt.core"
local native = require "zt.ckpt"
local script = require "zt.run.script"

local function record(run, named)
  local trainer = named.trainer or named.model
  local is_trainer = type(trainer) == "userdata"
  return {
    name = run and run.name,
    text = script.text,
    options = run and run.options,
    versions = core.versions(),
    ranks = core.world.size,
    launch = core.world.launch,
    mesh = is_trainer and trainer.mesh and tostring(trainer.mesh):match("mesh (.-) %(") or nil,
    program = is_trainer and native.digest(trainer:text()) or nil,
    saved = os.date("!%Y-%m-%dT%H:%M:%SZ"),
  }
end

return record
