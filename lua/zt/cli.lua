--- zt.cli: the command line of an experiment.
--
--   local options = zt.cli{
--     name = "gpt", about = "Trains a GPT.",
--     options = {
--       {"layers", 4, "number of blocks", at_least = 1},
--       {"lr", 3e-4, "peak learning rate", above = 0},
--       {"style", "gpt2", "which architecture", one_of = {"gpt2", "llama"}},
--       {"overwrite", false, "replace an earlier run of that name"},
--       {"clip", 1, "largest gradient norm", type = "number"},    -- with a whole default the type is "integer" unless given
--       {"data", nil, "the tokens", type = "string"},             -- without a default the option is nil unless given
--       {"stop", nil, "a text", type = "string", repeats = true}, -- --stop a --stop b: {"a", "b"}
--     },
--     positional = {{"folder", "a run's folder"}},                -- words without --, all required: options.folder
--   }                                                             -- options.layers, options.lr, ...
--
-- The user writes `--layers 8` or `--layers=8`, booleans as `--overwrite` and `--no-overwrite`, lists as `--sizes 1,2,3`. A `_`
-- in a name is a `-` on the command line. An option with a value is given once, unless it `repeats`. Lua does not tell 0.0 from
-- 0: with such a default, type = "number" allows 0.2. `--help` prints the options and ends the run with status 0; a mistake ends
-- it with status 2.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local script = require "zt.run.script"

local SCHEMA = {
  {"name", "string", "what the experiment is called", required = true},
  {"about", "string", "a sentence for --help", default = ""},
  {"options", "list", "a list of {name, default, help}", default = {}},
  {"positional", "list", "a list of {name, help}: the words without --, in this order, all of them required. The last may say "
    .. "at_least = N: then it is a list of N words or more", default = {}},
  {"usage", "string", "the command, for --help; when absent: ztoolkit run SCRIPT"},
  {"arguments", "list", "the words to read instead of the command line"},
}

-- The fields that an option of the script may have besides {name, default, help}.
local EXTRAS = {
  {"type", "string", "its type; by default that of the default"},
  {"at_least", "number", "the least value"},
  {"above", "number", "values are above this"},
  {"below", "number", "values are below this"},
  {"between", "list", "{the least value, the largest value}"},
  {"one_of", "list", "the allowed values"},
  {"peers", "list", "names that other tools have for it"},
  {"repeats", "boolean", "whether it may be given several times: the option is then the list of its values, without a default"},
}

local function flag_of(option) return "--" .. option[1]:gsub("_", "-") end

local function type_of(option)
  if option.type then return option.type end
  local default = option[2]
  if type(default) == "number" then return default == math.floor(default) and "integer" or "number" end
  if type(default) == "table" then return "list" end
  if default == nil then fail("zt.cli: option '%s' has no default, so it needs a type", option[1]) end
  return type(default)
end

local function number_from(word, kind)
  local value = tonumber(word)
  if not value or value ~= value then return nil, kind == "integer" and "an integer" or "a number" end
  if kind == "integer" and value ~= math.floor(value) then return nil, "an integer" end
  return value
end

-- By type: a function that converts a word to a value. On a mistake it returns nil and the text of what was expected.
local READERS = {
  integer = function(word) return number_from(word, "integer") end,
  number = function(word) return number_from(word, "number") end,
  string = function(word) return word end,
  boolean = function(word)
    if word == "true" then return true end
    if word == "false" then return false end
    return nil, "true or false"
  end,
  list = function(word)
    local list = {}
    for item in (word .. ","):gmatch("(.-),") do list[#list + 1] = tonumber(item) or item end
    return word == "" and {} or list
  end,
}

local KINDS = check.sorted_keys(READERS)

-- Fails unless entry `place` of the list `list` has a name and, at the index `help`, a help text.
local function check_entry(list, place, entry, help)
  local path = ("zt.cli.%s[%d]"):format(list, place)
  check.argument("zt.cli", ("%s[%d]"):format(list, place), "table", entry)
  check.argument(path, "the name", "string", entry[1])
  check.argument(path .. " ('" .. entry[1] .. "')", "the help", "string", entry[help])
end

-- Fails unless the script declares its option rightly.
local function check_option(place, option)
  check_entry("options", place, option, 3)
  local path, extras = ("zt.cli: option '%s'"):format(option[1]), {}
  for key, value in pairs(option) do
    if type(key) == "string" then extras[key] = value end
  end
  check.options(path, EXTRAS, extras)
  local kind = type_of(option)
  if not READERS[kind] then fail("%s has the unknown type '%s'%s", path, kind, core.suggest(kind, KINDS)) end
  if option[2] ~= nil and not check.is(kind, option[2]) then
    fail("%s has the type %s, but its default is %s", path, kind, check.type_name(option[2]))
  end
  if option.repeats and (option[2] ~= nil or kind == "boolean" or kind == "list") then
    fail("%s: with repeats it has no default, and its type is integer, number or string", path)
  end
  if option.between then
    check.items(path .. ": between", "number", option.between)
    if #option.between ~= 2 then fail("%s: between needs two numbers, {least, largest}", path) end
  end
  local is_number = kind == "integer" or kind == "number"
  for _, bound in ipairs {"at_least", "above", "below", "between"} do
    if option[bound] and not is_number then fail("%s: %s is for numbers, and its type is %s", path, bound, kind) end
  end
end

local function shown(value)
  if type(value) == "table" then return table.concat(value, ",") end
  return tostring(value)
end

local function usage(spec)
  local words = {spec.usage or "ztoolkit run " .. (arg and arg[0] or spec.name .. ".lua")}
  for _, word in ipairs(spec.positional) do words[#words + 1] = word[1]:upper() .. (word.at_least and "..." or "") end
  if #spec.options > 0 then words[#words + 1] = "[options]" end
  return table.concat(words, " ")
end

local function help_text(spec)
  local rows = {}
  for _, word in ipairs(spec.positional) do rows[#rows + 1] = {word[1]:upper(), word[2]} end
  for _, option in ipairs(spec.options) do
    local kind = type_of(option)
    local flag = flag_of(option)
    local default = (option[2] == nil or option[2] == "" or option[2] == false) and "" or (" (%s)"):format(shown(option[2]))
    if kind ~= "boolean" then
      flag = flag .. " " .. (option.one_of and table.concat(option.one_of, "|") or kind)
    elseif option[2] then
      flag, default = flag .. ", --no-" .. flag:sub(3), " (on)"
    end
    rows[#rows + 1] = {flag, option[3] .. (option.repeats and "; may be given several times" or default)}
  end
  rows[#rows + 1] = {"--help", "show this and exit"}
  local width = 0
  for _, row in ipairs(rows) do width = math.max(width, #row[1]) end
  local lines = {"usage: " .. usage(spec)}
  if spec.about ~= "" then lines[#lines + 1] = spec.about end
  lines[#lines + 1] = ""
  for _, row in ipairs(rows) do lines[#lines + 1] = ("  %-" .. width .. "s  %s"):format(row[1], row[2]) end
  return table.concat(lines, "\n") .. "\n"
end

-- Ends the process with `status`. All ranks read the same command line, so all call this function; rank 0 writes the message.
-- mpirun kills all ranks as soon as one exits with a status other than 0: the other ranks wait 1 s until the message is out.
local function leave(status, stream, message)
  if core.world.rank == 0 then
    stream:write(message)
    stream:flush()
  elseif status ~= 0 then
    core.sleep(1)
  end
  os.exit(status)
end

local function read_value(option, word)
  local kind = type_of(option)
  local value, expected = READERS[kind](word)
  if value == nil then
    local is_fraction = kind == "integer" and not option.type and tonumber(word) -- the script's author may have meant 0.0
    local note = is_fraction and (' (its default is %d; for other numbers the script must say type = "number")'):format(option[2])
    return nil, ("must be %s, got '%s'%s"):format(expected, word, note or "")
  end
  local complaint = check.complaint(option, value)
  if complaint then return nil, ("%s, got '%s'"):format(complaint, word) end
  return value
end

-- Finds the option of a word such as "--no-trace" or "--layers=3". Returns the option, the value after "=" (or nil), and whether
-- the word begins with "--no-". Returns nil and the flag if there is no such option.
local function find(by_flag, word)
  local flag, value = word:match("^(%-%-[^=]+)=(.*)$")
  flag = (flag or word):gsub("_", "-")
  if by_flag[flag] then return by_flag[flag], value, false end
  local positive = by_flag["--" .. (flag:match("^%-%-no%-(.*)$") or "")]
  if positive and type_of(positive) == "boolean" and value == nil then return positive, nil, true end
  return nil, flag
end

-- Assigns `word`, which has no "--", to the next positional argument. Returns true, or nil and the complaint.
local function take_positional(spec, out, word)
  for _, wanted in ipairs(spec.positional) do
    local name = wanted[1]
    if wanted.at_least then
      out[name] = out[name] or {}
      table.insert(out[name], word)
      return true
    end
    if out[name] == nil then
      out[name] = word
      return true
    end
  end
  return nil, ("unexpected argument '%s': options begin with --"):format(word)
end

local function complaint_of_missing(spec, out)
  for _, wanted in ipairs(spec.positional) do
    local name, given, least = wanted[1]:upper(), out[wanted[1]], wanted.at_least
    if given == nil then return ("%s is missing: %s"):format(name, wanted[2]) end
    if least and #given < least then return ("%s needs at least %d words, got %d: %s"):format(name, least, #given, wanted[2]) end
  end
  return nil
end

-- Enters the value of an option into `out`. `given` has the names of those that were entered before. Returns the complaint, or
-- nil.
local function enter(option, value, out, given)
  local name = option[1]
  if option.repeats then
    out[name] = out[name] or {}
    table.insert(out[name], value)
  elseif given[name] then
    return ("option '%s' is given twice, and has one value: leave one out"):format(flag_of(option))
  else
    out[name], given[name] = value, true
  end
  return nil
end

-- Reads the option at words[index] and its value into `out`. `entered` has the names of the options with a value that were read
-- before. Returns the index of the last word used, or nil and the complaint.
local function take_option(spec, out, words, index, entered)
  local by_flag, rows = {}, {}
  for place, option in ipairs(spec.options) do by_flag[flag_of(option)], rows[place] = option, option end
  rows[#rows + 1] = {"help"}
  local option, given, is_negated = find(by_flag, tostring(words[index]))
  if not option then
    return nil, ("unknown option '%s'%s"):format(given, check.hint(rows, given:gsub("^%-%-", ""):gsub("%-", "_"), flag_of))
  end
  if type_of(option) == "boolean" and given == nil then
    local following = words[index + 1]
    if following == "true" or following == "false" then
      local flag = flag_of(option)
      return nil, ("option '%s' is switched on by %s and off by --no-%s, without the word '%s'"):format(flag, flag, flag:sub(3),
        following)
    end
    out[option[1]] = not is_negated
    return index
  end
  if given == nil then
    index = index + 1
    given = words[index] and tostring(words[index])
  end
  if given == nil then return nil, ("option '%s' needs a value (%s)"):format(flag_of(option), option[3]) end
  local value, complaint = read_value(option, given)
  if value == nil then return nil, ("option '%s' %s"):format(flag_of(option), complaint) end
  complaint = enter(option, value, out, entered)
  if complaint then return nil, complaint end
  return index
end

-- Returns the options by name; or nil and a complaint; or nil, nil and true if --help is given.
local function parse(spec, words)
  local out, entered, index = {}, {}, 1
  for _, option in ipairs(spec.options) do out[option[1]] = option[2] end
  while index <= #words do
    local word = tostring(words[index])
    if word == "--help" or word == "-h" then return nil, nil, true end
    if word:sub(1, 2) == "--" then
      local complaint
      index, complaint = take_option(spec, out, words, index, entered)
      if complaint then return nil, complaint end
    else
      local is_taken, complaint = take_positional(spec, out, word)
      if not is_taken then return nil, complaint end
    end
    index = index + 1
  end
  local missing = complaint_of_missing(spec, out)
  if missing then return nil, missing end
  return out
end

--- Returns the options of the command line as a table by name; the head of this file describes `value`. Fails if zt.cli itself is
-- called wrongly.
local function cli(value)
  local spec = check.options("zt.cli", SCHEMA, value)
  for place, option in ipairs(spec.options) do check_option(place, option) end
  for place, word in ipairs(spec.positional) do check_entry("positional", place, word, 2) end
  if not spec.arguments then
    for _, option in ipairs(spec.options) do script.flags[option[1]] = flag_of(option) end
  end
  local out, complaint, is_help = parse(spec, spec.arguments or arg or {})
  if is_help then leave(0, io.stdout, help_text(spec)) end
  if complaint then leave(2, io.stderr, ("%s: %s\nRun it with --help to see the options.\n"):format(spec.name, complaint)) end
  return out
end

return cli
