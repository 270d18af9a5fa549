--- ckpt.load: loads a checkpoint into objects, whatever layout it was saved from.
--
--   ckpt.load("runs/gpt", {trainer = trainer, data = text})        -- the latest checkpoint of a run
--   ckpt.load("runs/gpt/step_00000200", {model = trainer})         -- parameters only
--   ckpt.load(folder, {trainer = trainer}, {only = {"^model/"}, map = {["^model/h[.]"] = "model/blocks."}})
--   ckpt.load("runs/dense", {model = trainer}, {upcycle = true})   -- experts start as copies of the dense MLPs
--
-- Collective. Waits for a save in the background first. Returns the plain values of `named`, by key. Names that do not match -
-- missing ones, unused ones, other shapes - are an error that lists them before anything is changed. With strict = false they are
-- a warning. An expression of `only` or `map` that is found in no name is always an error.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local incomplete = require "zt.ckpt.loading.incomplete"
local log = require "zt.log"
local native = require "zt.ckpt"
local objects = require "zt.ckpt.objects"
local on_rank_zero = require "zt.on_rank_zero"
local patterns = require "zt.ckpt.loading.patterns"
local rng = require "zt.ckpt.rng"
local savers = require "zt.ckpt.savers"

local SCHEMA = {
  {"strict", "boolean", "names that do not match are an error", default = true},
  {"only", "list", "load only names in which one of these regular expressions is found"},
  {"map", "table", "{[regular expression] = replacement}: turns names of the checkpoint into names of the objects"},
  {"upcycle", "boolean", "experts start as copies of the checkpoint's dense MLPs", default = false},
  {"mesh", "Mesh", "the ranks that load together; without it the trainer's"},
}

-- Fails unless `only` and `map` hold regular expressions.
local function check_types(options)
  if options.only then
    check.items("ckpt.load.only", "string", options.only)
    if #options.only == 0 then fail "ckpt.load.only has no regular expression: leave it out to load all names" end
  end
  for pattern, replacement in pairs(options.map or {}) do
    if type(pattern) ~= "string" or type(replacement) ~= "string" then
      fail("ckpt.load.map must have strings, {[regular expression] = replacement}, got %s = %s", tostring(pattern),
           tostring(replacement))
    end
  end
end

-- Fails if an expression of `only` or `map` is found in no name. Collective.
local function check_found(folder, mesh, list, options)
  if not options.only and not options.map then return end
  local of = ("the checkpoint '%s'"):format(folder)
  on_rank_zero(mesh and mesh:world(), function()
    local names, content = {}, native.open(folder):describe()
    for _, tensor in ipairs(content.tensors) do names[#names + 1] = tensor.name end
    for _, name in ipairs(check.sorted_keys(content.values)) do names[#names + 1] = name end
    names = patterns.renamed("ckpt.load.map", names, options.map or {}, of)
    patterns.check("ckpt.load.only", names, options.only or {}, objects.names(list), of .. " or of the objects")
  end)
end

-- Returns the `only` to use. A trainer under the key "model" loads parameters only; other keys load all their names.
local function only_of(named, only)
  if only or named.trainer or not named.model then return only end
  local list = {"^model/"}
  for key in pairs(named) do
    if key ~= "model" then list[#list + 1] = "^" .. key:gsub("%p", "[%0]") .. "(/|$)" end
  end
  return list
end

-- The key "model" is for parameters of another run. Whoever wants to go on with a run learns what it leaves.
local function say_what_is_left(folder)
  if core.world.rank > 0 then return end
  for _, tensor in ipairs(native.open(folder):describe().tensors) do
    if tensor.name:find "^optimizer/" then
      log.info("%s: {model = trainer} loads parameters only; {trainer = trainer} also the optimizer's state and the step", folder)
      return
    end
  end
end

local function load(path, named, value)
  local options = check.options("ckpt.load", SCHEMA, value or {})
  check.argument("ckpt.load", "the folder of a checkpoint or of a run", "string", path)
  check_types(options)
  if options.upcycle and named.trainer then
    fail "ckpt.load: upcycle loads parameters only, as dense MLPs have no optimizer's state of experts: give {model = trainer}"
  end
  local list = objects.list("ckpt.load", named)
  if core.world.dry then return {} end
  local mesh = objects.mesh(options.mesh, named)
  savers.wait()
  local folder = incomplete.find(path, mesh)
  if not folder then fail("there is no checkpoint in '%s': give the folder of a run, or of one checkpoint", path) end
  local only = only_of(named, options.only)
  if not only then list[#list + 1] = {"rng", {}} end
  local values = incomplete.guard(folder, function()
    check_found(folder, mesh, list, options)
    return native.load_objects(folder, mesh, list, {
      strict = options.strict, only = only, map = options.map, upcycle = options.upcycle,
    })
  end)
  if only and not options.only then say_what_is_left(folder) end
  rng.restore(values.rng)
  return objects.restore(named, values)
end

return load
