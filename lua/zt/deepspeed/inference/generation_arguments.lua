--- Settles the arguments of a call of `generate` by those of generation_config and by the file of the model's folder, in this
-- order, and refuses by name what would change the tokens.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local keys = require "zt.deepspeed.inference.generation_keys"

local generation_arguments = {}

local NAME = "engine:generate"

local function each_name(fn)
  for _, list in ipairs {keys.TAKEN, keys.OF_CALL} do
    for _, row in ipairs(list) do fn(row[1]) end
  end
  for _, map in ipairs {keys.REFUSED, keys.IDLE, keys.REFUSED_OF_CALL, keys.IDLE_OF_CALL} do
    for name in pairs(map) do fn(name) end
  end
end

local KNOWN, NAMES = {}, {}
each_name(function(name)
  KNOWN[name] = true
  NAMES[#NAMES + 1] = name
end)
table.sort(NAMES)

local function check_names(source)
  for _, key in ipairs(check.sorted_keys(source.values)) do
    if not KNOWN[key] then fail("%s: unknown option '%s'%s", source.name, key, core.suggest(key, NAMES)) end
  end
end

-- Returns the sources of arguments, the first of which wins: {{name =, values =, is_file =}, ...}.
local function sources_of(arguments, defaults)
  local own, inner = {}, arguments.generation_config
  for key, value in pairs(arguments) do own[key] = value end
  own.generation_config, own.inputs = nil, nil
  if arguments.inputs ~= nil then
    if own.input_ids ~= nil then fail("%s: inputs is another name of input_ids: give one of them", NAME) end
    own.input_ids = arguments.inputs
  end
  if inner ~= nil and type(inner) ~= "table" then
    fail("%s.generation_config must be a table of arguments, got %s", NAME, check.type_name(inner))
  end
  local sources = {{name = NAME, values = own}, {name = NAME .. ".generation_config", values = inner or {}}}
  for _, source in ipairs(sources) do check_names(source) end
  sources[3] = {name = ("'%s'"):format(defaults.path or "the model"), values = defaults.values, is_file = true}
  return sources
end

local function first_of(sources)
  local chosen = {}
  for _, source in ipairs(sources) do
    for key, value in pairs(source.values) do
      if chosen[key] == nil then chosen[key] = {value = value, source = source} end
    end
  end
  return chosen
end

local function shown(value)
  if type(value) == "string" then return "'" .. value .. "'" end
  if type(value) == "number" then return ("%.14g"):format(value) end
  return type(value) == "boolean" and tostring(value) or check.type_name(value)
end

-- Fails for a value that would change the tokens.
local function refuse(chosen, is_drawn)
  for _, key in ipairs(check.sorted_keys(chosen)) do
    local row, given = keys.REFUSED[key] or keys.REFUSED_OF_CALL[key], chosen[key]
    if row and keys.changes_tokens(row, given.value, is_drawn) then
      local off = row.off[1]
      local instead = given.source.is_file and (off ~= nil and ("; %s = %s as an argument of %s replaces it"):format(key,
        shown(off), NAME) or "; take the key out of the file") or ""
      fail("%s.%s = %s: %s%s", given.source.name, key, shown(given.value), row[1], instead)
    end
  end
end

-- Tells about values that have no effect, but say something.
local function tell_idle(chosen, notice)
  for _, key in ipairs(check.sorted_keys(chosen)) do
    local row, given = keys.IDLE[key] or keys.IDLE_OF_CALL[key], chosen[key]
    if row and row[2] and not keys.is_among(given.value, row[2]) then
      notice(("%s.%s = %s has no effect: %s"):format(given.source.name, key, shown(given.value), row[1]))
    end
  end
end

-- Returns the checked value of a row; nil if it has no effect because no token is drawn.
local function value_of(row, given, is_drawn)
  local key, source, value = row[1], given.source, given.value
  if row.is_drawn and not is_drawn then
    if source.is_file or keys.is_among(value, row.harmless) then return nil end
    fail("%s.%s has an effect only with do_sample = true: change that, or leave %s out", source.name, key, key)
  end
  return check.options(source.name, {row}, {[key] = value})[key]
end

local LENGTHS = {{"max_length", "max_new_tokens"}, {"min_length", "min_new_tokens"}}

-- Leaves out the length that counts the sample, where the other one is given, too. As in transformers, the other one wins,
-- whatever says so.
local function settle_lengths(chosen, notice)
  for _, pair in ipairs(LENGTHS) do
    local whole, new = chosen[pair[1]], chosen[pair[2]]
    if whole and new then
      if not whole.source.is_file and not new.source.is_file then
        fail("%s: %s counts the tokens of the sample, and %s does not: give one of them", NAME, pair[1], pair[2])
      end
      if new.source.is_file and not whole.source.is_file then
        notice(("%s.%s has no effect: as in transformers, %s = %s of %s wins; give that argument"):format(whole.source.name,
          pair[1], pair[2], shown(new.value), new.source.name))
      end
      chosen[pair[1]] = nil
    end
  end
end

--- Returns the values of the arguments, and by name whether the file gave them. `defaults` is of generation_file.read, and
-- notice(text) is called for what has no effect.
function generation_arguments.settle(arguments, defaults, notice)
  local chosen = first_of(sources_of(arguments, defaults))
  local of_sample = chosen.do_sample
  if of_sample then check.options(of_sample.source.name, {{"do_sample", "boolean", ""}}, {do_sample = of_sample.value}) end
  local is_drawn = of_sample ~= nil and of_sample.value
  refuse(chosen, is_drawn)
  tell_idle(chosen, notice)
  settle_lengths(chosen, notice)
  local o, is_of_file = {}, {}
  for _, list in ipairs {keys.OF_CALL, keys.TAKEN} do
    for _, row in ipairs(list) do
      local key, given = row[1], chosen[row[1]]
      if given then o[key], is_of_file[key] = value_of(row, given, is_drawn), given.source.is_file end
      if row.required and not given then fail("%s: option '%s' is missing (%s)", NAME, key, row[3]) end
    end
  end
  return o, is_of_file
end

return generation_arguments
