--- What a script hands to ckpt.save and ckpt.load, as the C++ side takes it: a list of {prefix of names, object or value}.
--
-- Under "trainer" or "model" a trainer's tensors have the names that FORMAT.md gives (model/..., optimizer/...); under any other
-- key that key stands in front. What is no object with state is a plain value; a Lua object with `state` and `restore` is saved
-- as the value that `state` returns.

local core = require "zt.core"
local fail = require "zt.fail"

local objects = {}

local PLAIN = {trainer = true, model = true}

local function is_lua_object(value) return type(value) == "table" and type(value.state) == "function" end

local function prefix_of(key, value)
  if type(value) ~= "userdata" then return key end
  return PLAIN[key] and "" or key .. "/"
end

--- The list for C++, in the same order on every rank.
function objects.list(call, named)
  if type(named) ~= "table" then fail("%s takes a table {trainer = ..., data = ..., name = value}", call) end
  local keys, list = {}, {}
  for key in pairs(named) do
    if type(key) ~= "string" or key == "" or key:find "/" then
      fail("%s: what is saved needs names without '/', got '%s'", call, tostring(key))
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local value = named[key]
    if is_lua_object(value) then
      if type(value.restore) ~= "function" then
        fail("%s: '%s' has a method state and none named restore, so it could be saved and not loaded", call, key)
      end
      value = value:state()
    end
    list[#list + 1] = {prefix_of(key, value), value}
  end
  return list
end

--- Behind a load: gives Lua objects their values; returns the plain values by key.
function objects.restore(named, values)
  local plain = {}
  for key, value in pairs(named) do
    if is_lua_object(value) then
      if values[key] ~= nil then value:restore(values[key]) end
    elseif type(value) ~= "userdata" then
      plain[key] = values[key]
    end
  end
  return plain
end

local all_ranks

--- The mesh whose ranks save or load together: one that was given, a trainer's, or all ranks; nil: there is one rank.
function objects.mesh(given, named)
  if given then return given end
  for _, key in ipairs {"trainer", "model"} do
    local has_mesh, mesh = pcall(function() return named[key].mesh end) -- what is no trainer C++ refuses, with its reason
    if has_mesh and mesh then return mesh end
  end
  if core.world.size > 1 and not core.world.dry then all_ranks = all_ranks or require("zt.comm").mesh{dp = -1} end
  return all_ranks
end

return objects
