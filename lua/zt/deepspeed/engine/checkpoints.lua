--- Saves and loads an engine with DeepSpeed's names: folder/TAG is a checkpoint of zt.ckpt, folder/latest names the last tag.

local check = require "zt.check"
local ckpt = require "zt.ckpt"
local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"
local log = require "zt.log"
local on_rank_zero = require "zt.on_rank_zero"
local reports = require "zt.deepspeed.engine.reports"

local COUNTERS = {"global_steps", "micro_steps", "skipped_steps", "global_samples", "own_lr", "schedule_start"}

local LOAD = {
  {"load_optimizer_states", "boolean", "load the optimizer's states and the loss scale; otherwise they start anew",
   default = true},
  {"load_lr_scheduler_states", "boolean", "continue the schedule; otherwise it starts anew", default = true},
  {"load_module_only", "boolean", "load the parameters and the client state only", default = false},
  {"load_module_strict", "boolean", "fail if names do not match", default = true},
}

local checkpoints = {}

-- Returns rank 0's `value`. If another rank has another value, fails, warns or does nothing, as checkpoint.tag_validation says.
-- Collective.
local function agreed(engine, call, what, value)
  local all = engine.mesh:world():gather_values{value}
  for rank = 2, #all do
    if all[rank][1] ~= all[1][1] then
      local validation = engine.config.checkpoint.tag_validation
      local complaint = ("engine:%s: ranks name different %s: '%s' on rank 0, '%s' on rank %d"):format(call, what,
        tostring(all[1][1]), tostring(all[rank][1]), rank - 1)
      if validation == "fail" then fail("%s", complaint) end
      if validation == "warn" and core.world.rank == 0 then log.warn("%s: rank 0's is used", complaint) end
      break
    end
  end
  return all[1][1]
end

local function check_folder(call, folder) check.argument("engine:" .. call, "the folder", "string", folder) end

local function check_tag(call, tag)
  if type(tag) ~= "string" or tag == "" or tag == "." or tag == ".." or tag == "latest" or tag:find "/" then
    fail("engine:%s: a tag is the name of a folder, such as \"global_step200\", got '%s'", call, tostring(tag))
  end
end

-- Returns the named objects of a checkpoint.
local function objects(engine, client_state)
  local counters = {}
  for _, name in ipairs(COUNTERS) do counters[name] = engine[name] end
  return {trainer = engine.trainer, data = engine.data, engine = counters, client = client_state}
end

--- Saves the trainer, the data stream, the counters and `client_state`, a table of plain values, as folder/tag. Without a tag,
-- the tag is "global_step" and the number of steps. Collective. Returns true.
function checkpoints.save_checkpoint(engine, folder, tag, client_state)
  check_folder("save_checkpoint", folder)
  if client_state ~= nil then check.argument("engine:save_checkpoint", "the client state", "table", client_state) end
  engine:expect_boundary "save_checkpoint"
  tag = agreed(engine, "save_checkpoint", "tags", tag or "global_step" .. engine.global_steps)
  check_tag("save_checkpoint", tag)
  ckpt.save(folder .. "/" .. tag, objects(engine, client_state or {}), {
    step = engine.global_steps, mesh = engine.mesh, async = false, keep = 1,
  })
  if not core.world.dry then
    on_rank_zero(engine.mesh:world(), function() core.write_file(folder .. "/latest", tag .. "\n") end)
  end
  return true
end

local function latest_tag(engine, folder)
  return on_rank_zero(engine.mesh:world(), function()
    return core.exists(folder .. "/latest") and fs.read(folder .. "/latest"):match "^(%C+)" or nil
  end)
end

-- Returns the regular expression for the names to load, in a list; nil means all.
local function patterns(options)
  if options.load_module_only then return {"^model/|^client$"} end
  if not options.load_optimizer_states then return {"^model/|^trainer/(step|lr)$|^data/|^engine$|^client$"} end
  return nil
end

local function check_schedule(engine, options)
  if options.load_module_only or options.load_lr_scheduler_states or engine.rate or not engine.schedule then return end
  fail("engine:load_checkpoint: load_lr_scheduler_states = false cannot restart a schedule of zt.optim, because it follows the "
    .. "trainer's steps: give the schedule as a function of updates, or in the configuration")
end

local function take_counters(engine, counters, options)
  for _, name in ipairs(COUNTERS) do engine[name] = counters[name] end
  engine.step_start = engine.micro_steps -- checkpoints are saved between two steps
  if not options.load_lr_scheduler_states then
    engine.own_lr, engine.schedule_start = nil, engine.global_steps - engine.skipped_steps
  end
  engine:set_lr(engine.own_lr)
end

--- Loads folder/tag (without a tag the last one saved). This engine's mesh and stage may differ from those of the save.
-- Collective. Returns the checkpoint's folder and the client_state. If there is no tag and no folder/latest, warns and returns
-- nil and {}.
function checkpoints.load_checkpoint(engine, folder, tag, value)
  local options = check.options("engine:load_checkpoint", LOAD, value or {})
  check_folder("load_checkpoint", folder)
  engine:expect_boundary "load_checkpoint"
  check_schedule(engine, options)
  tag = agreed(engine, "load_checkpoint", "tags", tag) or latest_tag(engine, folder)
  if tag == nil then
    if core.world.rank == 0 then
      log.warn("engine:load_checkpoint: there is no '%s/latest' and no tag is given: nothing is loaded", folder)
    end
    return nil, {}
  end
  check_tag("load_checkpoint", tag)
  local path = folder .. "/" .. tag
  if core.world.dry then return path, {} end
  local values = ckpt.load(path, objects(engine, {}), {
    strict = options.load_module_strict, only = patterns(options), mesh = engine.mesh,
  })
  if values.engine then take_counters(engine, values.engine, options) end
  reports.loaded(engine)
  return path, values.client or {}
end

--- Writes the whole parameters in the compute type to folder/name, a safetensors file. Collective. Rank 0 writes and holds one
-- parameter in memory at a time. Returns true.
function checkpoints.save_16bit_model(engine, folder, name)
  check_folder("save_16bit_model", folder)
  name = name or "model.safetensors"
  if type(name) ~= "string" or not name:find "%.safetensors$" or name:find "/" then
    fail("engine:save_16bit_model writes safetensors: give a name that ends in .safetensors, got '%s'", tostring(name))
  end
  engine:expect_boundary "save_16bit_model"
  if not core.world.dry then ckpt.save_safetensors(engine.trainer, folder .. "/" .. name, {overwrite = true}) end
  return true
end

return checkpoints
