--- ckpt.load: loads a checkpoint into objects, whatever layout it was saved from.
--
--   ckpt.load("runs/gpt", {trainer = trainer, data = text})        -- the latest checkpoint of a run
--   ckpt.load("runs/gpt/step_00000200", {model = trainer})         -- parameters only
--   ckpt.load(folder, {trainer = trainer}, {only = {"^model/"}, map = {["^model/h[.]"] = "model/blocks."}})
--   ckpt.load("runs/dense", {model = trainer}, {upcycle = true})   -- experts start as copies of the dense MLPs
--
-- Collective. Waits for a save in the background first. Returns the plain values of `named`, by key. Names that do not match -
-- missing ones, unused ones, other shapes - are an error that lists them before anything is changed. With strict = false they are
-- a warning.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"
local rng = require "zt.ckpt.rng"
local savers = require "zt.ckpt.savers"

local SCHEMA = {
  {"strict", "boolean", "names that do not match are an error", default = true},
  {"only", "list", "load only names in which one of these regular expressions is found"},
  {"map", "table", "{[regular expression] = replacement}: turns names of the checkpoint into names of the objects"},
  {"upcycle", "boolean", "experts start as copies of the checkpoint's dense MLPs", default = false},
  {"mesh", "any", "the ranks that load together; without it the trainer's"},
}

-- Returns the `only` to use. A trainer under the key "model" loads parameters only; other keys load all their names.
local function patterns(named, only)
  if only or named.trainer or not named.model then return only end
  local list = {"^model/"}
  for key in pairs(named) do
    if key ~= "model" then list[#list + 1] = "^" .. key:gsub("%p", "[%0]") .. "(/|$)" end
  end
  return list
end

local function load(path, named, value)
  local options = check.options("ckpt.load", SCHEMA, value or {})
  if type(path) ~= "string" then fail "ckpt.load takes the folder of a checkpoint or of a run" end
  if options.upcycle and named.trainer then
    fail "ckpt.load: upcycle loads parameters only, as dense MLPs have no optimizer's state of experts: give {model = trainer}"
  end
  local list = objects.list("ckpt.load", named)
  if core.world.dry then return {} end
  local mesh = objects.mesh(options.mesh, named)
  savers.wait(mesh)
  local folder = native.find(path, mesh)
  if not folder then fail("there is no checkpoint in '%s': give the folder of a run, or of one checkpoint", path) end
  local only = patterns(named, options.only)
  if not only then list[#list + 1] = {"rng", {}} end
  local values = native.load_objects(folder, mesh, list, {
    strict = options.strict, only = only, map = options.map, upcycle = options.upcycle,
  })
  rng.restore(values.rng)
  return objects.restore(named, values)
end

return load
