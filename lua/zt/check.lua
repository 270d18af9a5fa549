--- Checks options tables in Lua by the rules of the C++ schemas (zt/base/options.h): an unknown key, a wrong type and a value out
-- of range, and an option that has no effect beside the others, are errors that name the key's path. No key is ignored.
--
--   local schema = {
--     {"name",  "string",  "names the run's folder", required = true},
--     {"every", "integer", "steps between two saves", default = 100, at_least = 1},
--     {"keep", "integer", "the number of saves that stay", only_with = {"with every", function(o) return o.every end}},
--   }
--   local options = zt.check_options("zt.save", schema, value)

local core = require "zt.core"
local fail = require "zt.fail"

local check = {}

local function is_whole(value) return type(value) == "number" and value == math.floor(value) and math.abs(value) < math.huge end

local function is_list(value)
  if type(value) ~= "table" then return false end
  local count = 0
  for _ in pairs(value) do count = count + 1 end
  return count == #value
end

--- Returns the keys of a table as strings, in ascending order.
function check.sorted_keys(value)
  local keys = {}
  for key in pairs(value) do keys[#keys + 1] = tostring(key) end
  table.sort(keys)
  return keys
end

local TENSOR = debug.getmetatable(core.tensor(0))

-- Returns the type of an object, such as "Trainer", "tensor", or the name of a Lua class. nil for other values.
local function object_name(value)
  local meta = debug.getmetatable(value)
  if type(value) == "userdata" and meta == TENSOR then return "tensor" end
  local name = type(value) ~= "string" and type(meta) == "table" and rawget(meta, "__name")
  return type(name) == "string" and name or nil
end

local function with_article(name) return (name:find "^[AEIOUaeiou]" and "an " or "a ") .. name end

--- Returns the type of `value` as text for messages: "an integer", "a list", "a Trainer".
function check.type_name(value)
  local kind, object = type(value), object_name(value)
  if object then return with_article(object) end
  if kind == "nil" then return "nil" end
  if kind == "number" then return is_whole(value) and "an integer" or "a number" end
  if kind == "table" then return (is_list(value) and next(value) ~= nil) and "a list" or "a table" end
  return "a " .. kind
end

-- By type of option: its name in messages, and a function that returns whether a value has the type.
local TYPES = {
  string = {"a string", function(value) return type(value) == "string" end},
  boolean = {"true or false", function(value) return type(value) == "boolean" end},
  number = {"a number", function(value) return type(value) == "number" end},
  integer = {"an integer", is_whole},
  list = {"a list", is_list},
  table = {"a table", function(value) return type(value) == "table" end},
  ["function"] = {"a function", function(value) return type(value) == "function" end},
  any = {"a value", function(value) return value ~= nil end},
}
for name, origin in pairs {
  Axis = "of a mesh, such as mesh.dp", Mesh = "from comm.mesh", Model = "such as nn.gpt{...}",
  Optimizer = "such as optim.adamw{...}", Schedule = "such as optim.warmup_cosine{...}", Trainer = "from zt.trainer",
  Run = "from zt.run", tensor = "such as zt.ones(2)",
} do
  TYPES[name] = {with_article(name) .. ", " .. origin, function(value) return object_name(value) == name end}
end

local function one_of_text(option) return ("one of '%s'"):format(table.concat(option.one_of, "', '")) end

--- Returns the complaint about a value of the right type, such as "must be at least 1", or nil. `option` may hold `at_least`,
-- `above`, `below`, `between = {low, high}` and `one_of = {names}`. nan is refused first: every comparison with it is false.
function check.complaint(option, value)
  if value ~= value then return "must be a number, got nan" end
  if option.at_least and value < option.at_least then return ("must be at least %g"):format(option.at_least) end
  if option.above and value <= option.above then return ("must be above %g"):format(option.above) end
  if option.below and value >= option.below then
    return option.below == math.huge and "must be finite" or ("must be below %g"):format(option.below)
  end
  local range = option.between
  if range and (value < range[1] or value > range[2]) then
    return ("must lie between %g and %g"):format(range[1], range[2])
  end
  if option.one_of then
    for _, name in ipairs(option.one_of) do
      if name == value then return nil end
    end
    return "must be " .. one_of_text(option)
  end
end

--- Returns the hint for an option that is not known: the one of the rows that other tools call so, or the most similar names.
-- text: function(row) that returns how a row's option is written.
function check.hint(rows, key, text)
  local names = {}
  for index, row in ipairs(rows) do
    for _, peer in ipairs(row.peers or {}) do
      if peer == key then return (": here it is '%s'"):format(text(row)) end
    end
    names[index] = text(row)
  end
  return core.suggest(text{key}, names)
end

local function check_known(name, schema, value)
  local known = {}
  for index, option in ipairs(schema) do
    if type(option[1]) ~= "string" then fail("%s: entry %d of the schema has no name", name, index) end
    known[option[1]] = true
  end
  for _, key in ipairs(check.sorted_keys(value)) do
    if not known[key] then
      fail("%s: unknown option '%s'%s", name, key, check.hint(schema, key, function(row) return row[1] end))
    end
  end
end

-- Returns what a value of another type than `kind` is, for messages.
local function got_text(kind, value)
  return kind == "integer" and type(value) == "number" and ("%g"):format(value) or check.type_name(value)
end

local function checked(name, option, value)
  local path = name .. "." .. option[1]
  local kind = TYPES[option[2]] or fail("%s: the schema has the unknown type '%s'", path, tostring(option[2]))
  if not kind[2](value) then
    local wanted = option.one_of and one_of_text(option) or kind[1]
    local about = option[2] == "table" and option[3] and (" (%s)"):format(option[3]) or ""
    fail("%s must be %s, got %s%s", path, wanted, got_text(option[2], value), about)
  end
  local complaint = check.complaint(option, value)
  if complaint then fail("%s %s", path, complaint) end
  return value
end

--- Returns whether `value` has the type `kind` of an option.
function check.is(kind, value) return TYPES[kind][2](value) end

--- Fails unless `value`, an argument of the function `call`, has the type `kind`: that of an option. `name` is the argument's.
function check.argument(call, name, kind, value)
  if not check.is(kind, value) then
    fail("%s: %s must be %s, got %s", call, name, TYPES[kind][1], got_text(kind, value))
  end
end

--- Fails unless `list` is a list whose items have the type `kind`. `path` is how messages name it.
function check.items(path, kind, list)
  if not is_list(list) then fail("%s must be a list, got %s", path, check.type_name(list)) end
  for place, item in ipairs(list) do
    if not check.is(kind, item) then
      fail("%s[%d] must be %s, got %s", path, place, TYPES[kind][1], got_text(kind, item))
    end
  end
end

--- Returns a new table: the options in `value` (nil or a table), with defaults for the others. `name` is the start of the paths
-- in messages. `schema` is a list of {key, type, doc, required =, default =, at_least =, above =, between =, one_of =,
-- only_with =, peers = names that other tools have for it}. A type is one of "string", "boolean", "number", "integer", "list",
-- "table", "function", "any", or that of an object: "Axis", "Mesh", "Model", "Optimizer", "Run", "Schedule", "Trainer", "tensor".
-- `only_with` is {when, has_effect}: who gives another value than the default although has_effect(options) is false reads that it
-- "has an effect only " .. when.
function check.options(name, schema, value)
  check.argument("zt.check_options", "the name", "string", name)
  check.items(name .. ": the schema", "table", schema)
  if value == nil then value = {} end
  if type(value) ~= "table" then fail("%s must be a table of options, got %s", name, check.type_name(value)) end
  check_known(name, schema, value)
  local out = {}
  for _, option in ipairs(schema) do
    local key = option[1]
    if value[key] ~= nil then
      out[key] = checked(name, option, value[key])
    elseif option.required then
      fail("%s: option '%s' is missing (%s)", name, key, option[3])
    else
      out[key] = option.default
    end
  end
  for _, option in ipairs(schema) do
    local key, only = option[1], option.only_with
    if value[key] ~= nil and value[key] ~= option.default and only and not only[2](out) then
      fail("%s.%s has an effect only %s: change that, or leave %s out", name, key, only[1], key)
    end
  end
  return out
end

return check
