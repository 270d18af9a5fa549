--- Converts the objects of ckpt.save and ckpt.load for the binding: to a list of {prefix of names, object or value}.
--
-- Under the keys "trainer" and "model" a trainer's tensors have the names that FORMAT.md gives (model/..., optimizer/...). Any
-- other key is put in front of an object's names. A Lua object with `state` and `restore` is saved as the value that `state`
-- returns. Everything else is a plain value.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local objects = {}

local PLAIN = {trainer = true, model = true}

local function is_lua_object(value)
  local has_state, state = pcall(function() return type(value) == "table" and value.state end) -- reading it may be an error
  return has_state and type(state) == "function"
end

local function prefix_of(key, value)
  if type(value) ~= "userdata" then return key end
  return PLAIN[key] and "" or key .. "/"
end

-- Fails, with the place in the script's own table, unless `value` can be saved as plain values.
local function check_plain(call, path, value, open)
  if type(value) ~= "table" then return end
  if open[value] then fail("%s: the table %s contains itself", call, path) end
  open[value] = true
  local count = 0
  for key in pairs(value) do
    count = count + 1
    if type(key) ~= "string" and #value == 0 then
      fail("%s: %s has the key %s, which is neither a name nor in a list from 1 to n without holes", call, path, tostring(key))
    end
  end
  if #value > 0 and count ~= #value then
    fail("%s: a table has either the keys 1 to n or names as keys, %s mixes them", call, path)
  end
  for key, item in pairs(value) do
    check_plain(call, type(key) == "string" and path .. "." .. key or ("%s[%d]"):format(path, key), item, open)
  end
  open[value] = nil
end

--- Returns the list for the binding, in the same order on every rank. call: the public function's name, for messages.
function objects.list(call, named)
  if type(named) ~= "table" or getmetatable(named) then
    fail("%s takes a table {trainer = ..., data = ..., name = value}, got %s", call, check.type_name(named))
  end
  local keys, list = {}, {}
  for key in pairs(named) do
    if type(key) ~= "string" or key == "" or key:find "/" then
      fail("%s: keys must be names without '/', got '%s'", call, tostring(key))
    end
    keys[#keys + 1] = key
  end
  -- Trainers come last: if a data stream refuses its state, a load has not changed them yet.
  table.sort(keys, function(a, b)
    if PLAIN[a] ~= PLAIN[b] then return not PLAIN[a] end
    return a < b
  end)
  for _, key in ipairs(keys) do
    local value = named[key]
    if PLAIN[key] and not is_lua_object(value) then check.argument(call, "'" .. key .. "'", "Trainer", value) end
    if is_lua_object(value) then
      if type(value.restore) ~= "function" then
        fail("%s: '%s' has a method 'state' but no method 'restore', so it could be saved but not loaded", call, key)
      end
      value = value:state()
      if value == nil then
        fail("%s: the method 'state' of '%s' returned nil: let it return plain values, such as a table", call, key)
      end
    end
    check_plain(call, key, value, {})
    list[#list + 1] = {prefix_of(key, value), value}
  end
  return list
end

--- Returns the run's trainer and data and `more`, by name.
function objects.of_run(call, run, more)
  local named = {trainer = run.trainer, data = run.data}
  for key, object in pairs(more) do
    if named[key] ~= nil then
      fail("%s: the run saves its own '%s' under that name: give this object another one in `objects`", call, key)
    end
    named[key] = object
  end
  return named
end

--- Returns names, or their beginnings, of what a list of objects holds, so that regular expressions can be found in them.
function objects.names(list)
  local names = {}
  for _, entry in ipairs(list) do
    names[#names + 1] = entry[1]
    for _, tensor in ipairs(entry[1] == "" and entry[2]:tensors() or {}) do names[#names + 1] = "model/" .. tensor.name end
  end
  return names
end

--- Called after a load: passes their values to Lua objects, and returns the plain values by key.
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

--- Returns the mesh whose ranks save or load together: the given one, a trainer's, or one of all ranks. nil means one rank.
function objects.mesh(given, named)
  if given then return given end
  for _, key in ipairs {"trainer", "model"} do
    local has_mesh, mesh = pcall(function() return named[key].mesh end) -- another object has no mesh: the binding refuses it
    if has_mesh and mesh then return mesh end
  end
  if core.world.size > 1 and not core.world.dry then all_ranks = all_ranks or require("zt.comm").mesh{dp = -1} end
  return all_ranks
end

return objects
