--- ckpt.save: saves a run, or anything that has state.
--
--   ckpt.save(run, steps_done)                                     -- runs/gpt/step_00000200
--   ckpt.save(run, steps_done, {every = 200, keep = 3})            -- called after every step: saves every 200 steps
--   ckpt.save("folder", {actor = a, critic = c, note = {loss = 2}}, {step = 7})
--
-- Collective. Returns the checkpoint's folder, or nil if nothing was saved. By default it returns after copying the tensors, and
-- a thread writes them. An error of the writing is raised on all ranks: by the next save, by run:finish() or at the script's end.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local hooks = require "zt.run.hooks"
local log = require "zt.log"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"
local on_rank_zero = require "zt.on_rank_zero"
local record = require "zt.ckpt.record"
local rng = require "zt.ckpt.rng"
local savers = require "zt.ckpt.savers"

local STOPPED = 75 -- EX_TEMPFAIL of sysexits.h: start again later

local SCHEMA = {
  {"step", "integer", "of a folder: the step that the checkpoint is named after; without it 0", at_least = 0},
  {"every", "integer", "save only if the step is a multiple of it or the run's last one, or the run is told to stop",
   at_least = 1},
  {"objects", "table", "what to save besides the run's trainer and data: {name = object or plain value}"},
  {"tokenizer", "any", "of a folder: what to keep of a tokenizer, as of zt.run"},
  {"mesh", "Mesh", "the ranks that save together; without it the run's or the trainer's"},
  {"async", "boolean", "return after copying the tensors, and write them in the background", default = true},
  {"skip_if_busy", "boolean", "skip a save while the previous one is still being written, instead of waiting", default = false,
   only_with = {"with async = true", function(o) return o.async or not o.skip_if_busy end}},
  {"keep", "integer", "the number of newest checkpoints that stay; 0: all", default = 0, at_least = 0},
  {"keep_every", "integer", "checkpoints whose step is a multiple of it stay, too; 0: none", default = 0, at_least = 0,
   only_with = {"with keep above 0", function(o) return o.keep > 0 or o.keep_every == 0 end}},
}

-- The runs that will wait for their last save in run:finish().
local waiting = setmetatable({}, {__mode = "k"})

local function wait_at_end(run, saver)
  if not run or waiting[run] then return end
  waiting[run] = true
  run:before_finish(function() saver:wait() end)
end

-- The runs that were warned of the number of a checkpoint.
local warned = setmetatable({}, {__mode = "k"})

-- Whether the number is probably that of the last step, from 0, and not of the steps done: the trainer has made as many updates
-- for each of step + 1 steps.
local function is_behind(run, step)
  local updates = run.trainer and run.trainer.global_step or 0
  if updates == 0 or run.last_step < step or updates % (step + 1) ~= 0 then return false end
  return step == 0 or updates % step ~= 0
end

-- Checks the number of steps done that a script gives for a run. It warns of the number of the last step, which is one less.
local function check_step(run, step)
  check.argument("ckpt.save(run, step)", "the number of steps done", "integer", step)
  if step < 0 then fail("ckpt.save(run, step): the number of steps done must be at least 0, got %d", step) end
  if run.steps and step > run.steps then
    fail("ckpt.save: %d steps are more than the run has: zt.run has steps = %d", step, run.steps)
  end
  if not is_behind(run, step) or warned[run] then return end
  warned[run] = true
  if core.world.rank > 0 then return end
  log.warn("ckpt.save: this is checkpoint %d of a run that has done %d steps, so a resumed run repeats a step: give step + 1",
           step, step + 1)
end

-- Returns folder, objects by name, step and run (nil for a folder) from the arguments of ckpt.save.
local function parts(target, what, options)
  if type(target) == "string" then
    if options.objects then fail "ckpt.save(folder, {...}) takes no option 'objects': put them into the table" end
    return target, what, options.step or 0, nil
  end
  if not check.is("Run", target) then
    fail("ckpt.save takes a run (zt.run) or the name of a folder, got %s", check.type_name(target))
  end
  check_step(target, what)
  if options.step then fail "ckpt.save(run, step) takes no option 'step': the step is the second argument" end
  if options.tokenizer then fail "ckpt.save(run, step) takes no option 'tokenizer': give zt.run that" end
  return target.path, objects.of_run("ckpt.save", target, options.objects or {}), what, target
end

-- Ends a run that a signal told to stop. The next start resumes from the checkpoint just saved.
local function stop(run, step)
  if core.world.rank == 0 then log.warn("told to stop: saved after step %d, ending with status %d", step, STOPPED) end
  if run then run:finish() end
  os.exit(STOPPED, true)
end

-- Refuses the folder of a run that has not ended, in this process or another one: two would number and remove its checkpoints.
local function refuse_folder_of_run(folder, mesh)
  on_rank_zero(mesh and mesh:world(), function()
    local holder = native.run_holder(folder)
    if holder and holder.is_alive then
      fail("ckpt.save: the folder '%s' belongs to a run that has not ended (process %d on host '%s'): save that run by "
        .. "ckpt.save(run, step), or give another folder", folder, holder.pid, holder.host)
    end
  end)
end

-- Rows {name, what it is}: every checkpoint holds these besides the objects.
local OWN = {{"rng", "the script's random numbers"}, {"script", "the script"}}

local function check_names(named)
  for _, own in ipairs(OWN) do
    if type(named) == "table" and rawget(named, own[1]) ~= nil then
      fail("ckpt.save: every checkpoint has %s under the name '%s': give your value another name", own[2], own[1])
    end
  end
end

local function save(target, what, value)
  local options = check.options("ckpt.save", SCHEMA, value or {})
  local folder, named, step, run = parts(target, what, options)
  if core.world.dry then return nil end
  local mesh = objects.mesh(options.mesh or (run and run.mesh), named)
  local is_told = options.every and native.is_stop_requested(mesh)
  local is_last = run and (step == run.steps or run.is_stopping)
  local is_time = not options.every or step % options.every == 0 or is_last
  if not is_time and not is_told then return nil end
  if run then run:check_lock() else refuse_folder_of_run(folder, mesh) end
  check_names(named)
  local list = objects.list("ckpt.save", named)
  list[#list + 1] = {"rng", rng.state(mesh)}
  list[#list + 1] = {"script", record(run, named, options.tokenizer)}
  local saver = savers.of(mesh)
  wait_at_end(run, saver)
  local skips = options.skip_if_busy and not (is_told or is_last)
  local is_saved = saver:save(folder, step, list, options.async and not is_told, skips, options.keep, options.keep_every)
  if not is_saved and core.world.rank == 0 then
    log.warn("step %d is not saved: the previous checkpoint is still being written", step)
  end
  local path = is_saved and ("%s/step_%08d"):format(folder, step) or nil
  if run and path then hooks.call(run, "save", step, path) end
  if is_told then stop(run, step) end
  return path
end

return save
