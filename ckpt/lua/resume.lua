--- ckpt.resume: resumes a run from its latest complete checkpoint.
--
--   local run = zt.run{name = "gpt", resume = true, trainer = trainer, data = text, steps = 1000}
--   ckpt.resume(run)                                   -- returns the number of steps done; 0: a fresh start
--   for step, batch in text:steps(1000) do ... end     -- begins with the first step that is not done
--
-- Collective. On the same layout the run continues bit for bit. On another layout tensors and data are equal, and sums are
-- computed in another order.

local check = require "zt.check"
local core = require "zt.core"
local incomplete = require "zt.ckpt.loading.incomplete"
local load = require "zt.ckpt.load"
local log = require "zt.log"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"
local on_rank_zero = require "zt.on_rank_zero"

-- Begins the record of the resumed run, and removes what later steps and unfinished saves left. Nothing of the run has changed
-- before.
local function begin(run, mesh, step)
  run:rewind(step)
  local removed = on_rank_zero(mesh and mesh:world(), function() return native.gc(run.path) end)
  if #removed > 0 then log.info("removed the remains of unfinished saves: %s", table.concat(removed, ", ")) end
end

local SCHEMA = {
  {"objects", "table", "what was saved besides the run's trainer and data", default = {}},
  {"strict", "boolean", "names that do not match are an error", default = true},
}

-- The advice of ckpt.load for a checkpoint that does not fit, and that for a run.
local ADVICE = "load a part of it with only = {...}, rename with map = {...}, or take what fits with strict = false"
local OWN_ADVICE = "make the model, the optimizer and the data as they were in that run, give in `objects` what was saved "
  .. "besides them, or take what fits with ckpt.resume(run, {strict = false}). To use a part of it, begin a new run, and load "
  .. "that part by ckpt.load(folder, {model = trainer}, {only = {...}})"

local function loaded(folder, named, options)
  local is_done, result = pcall(load, folder, named, options)
  if is_done then return result end
  local message = tostring(result)
  local first, last = message:find(ADVICE, 1, true)
  error(first and message:sub(1, first - 1) .. OWN_ADVICE .. message:sub(last + 1) or message, 0)
end

--- Returns the number of steps done, and the plain values of `objects` by key.
local function resume(run, value)
  local options = check.options("ckpt.resume", SCHEMA, value or {})
  check.argument("ckpt.resume", "the first argument", "Run", run)
  local named = objects.of_run("ckpt.resume", run, options.objects)
  if core.world.dry then return 0, {} end
  local mesh = objects.mesh(run.mesh, {trainer = run.trainer})
  local folder = incomplete.find(run.path, mesh)
  if not folder then
    begin(run, mesh, 0)
    return 0, {}
  end
  -- Not loaded: the script's record, which is for people, and saved plain values that the script does not ask for.
  local plain = loaded(folder, named, {strict = options.strict, mesh = mesh})
  local step = tonumber(folder:match "step_(%d+)[^/]*$")
  begin(run, mesh, step)
  log.info("the run '%s' resumes after step %d (%s)", run.name, step, folder)
  return step, plain
end

return resume
