--- Judges the values of a configuration: walks it along the blocks of keys.lua, checks names, types and ranges, and treats each
-- key as its fate (keys.lua) says.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local hjson = require "zt.deepspeed.hjson"

local judge = {}

local DTYPES = {
  fp32 = "fp32", float32 = "fp32", float = "fp32", ["torch.float32"] = "fp32",
  fp16 = "fp16", float16 = "fp16", half = "fp16", ["torch.float16"] = "fp16",
  bf16 = "bf16", bfloat16 = "bf16", ["torch.bfloat16"] = "bf16",
}

local function is_finite(value) return type(value) == "number" and math.abs(value) < math.huge end -- false for nan too
local function is_table(value) return type(value) == "table" end

local TYPES = {
  string = {"a string", function(value) return type(value) == "string" end},
  boolean = {"true or false", function(value) return type(value) == "boolean" end},
  number = {"a number", is_finite},
  integer = {"an integer", function(value) return is_finite(value) and value == math.floor(value) end},
  list = {"a list", function(value) return is_table(value) and (next(value) == nil or #value > 0) end},
  table = {"a table", is_table},
  any = {"a value", function() return true end},
}

local function shown(value)
  if type(value) == "string" then return "'" .. value .. "'" end
  if type(value) == "number" then return ("%.14g"):format(value) end
  if type(value) == "boolean" then return tostring(value) end
  return check.type_name(value)
end

-- Returns the values of `list` as text: "1, 2 or 3".
local function choices(list)
  local words = {}
  for index, value in ipairs(list) do words[index] = shown(value) end
  local last = table.remove(words)
  return #words == 0 and last or table.concat(words, ", ") .. " or " .. last
end

local function is_equal(a, b)
  if not (is_table(a) and is_table(b)) then return a == b end
  for key, value in pairs(a) do
    if not is_equal(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

local function is_among(value, list)
  for _, item in ipairs(list or {}) do
    if is_equal(value, item) then return true end
  end
  return false
end

-- Checks a value that is a name, and returns its standard form: the one name of a dtype, or lower case with `row.lower`. Fails if
-- the name is not in `row.one_of`.
local function named(entry, path, value)
  local row = entry.row
  if row.is_dtype then
    return DTYPES[value] or fail("%s must be 'fp32', 'fp16' or 'bf16', got '%s'", path, value)
  end
  if row.lower then value = value:lower() end
  if row.one_of and not is_among(value, row.one_of) then
    fail("%s must be %s, got %s", path, choices(row.one_of), shown(value))
  end
  return value
end

local function check_type(entry, path, value)
  if value == math.huge and entry.row.no_limit then return end
  local names = {}
  for name in entry.type:gmatch("%a+") do
    if TYPES[name][2](value) then return end
    names[#names + 1] = TYPES[name][1]
  end
  fail("%s must be %s, got %s", path, table.concat(names, " or "), shown(value))
end

-- Checks the type and the range of a value. Returns it in standard form, or nil if it means "no limit".
local function checked(entry, path, value)
  check_type(entry, path, value)
  local row = entry.row
  if type(value) == "string" or row.one_of then return named(entry, path, value) end
  if type(value) == "number" then
    local complaint = check.complaint(row, value)
    if complaint then fail("%s %s, got %s", path, complaint, shown(value)) end
  end
  if row.is_valid and not row.is_valid(value) then fail("%s must be %s", path, row.expected) end
  if row.no_limit and value >= row.no_limit then return nil end
  return value
end

-- Returns whether the value turns off its feature. `false` does so, unless true is the default.
local function is_off(row, value)
  if value == false and row.default ~= true or is_equal(value, row.default) or is_among(value, row.off) then return true end
  return is_table(value) and (value.enabled == false or row[3] == "any" and next(value) == nil)
end

-- Returns whether the value says what ztoolkit always does.
local function agrees(row, value, context)
  if row.default ~= nil and is_equal(value, row.default) or row.agrees == "any" then return true end
  if type(row.agrees) == "function" then return row.agrees(value, context) end
  return is_among(value, row.agrees)
end

local function expectation(row)
  if row.expected then return row.expected end
  return choices(row.agrees or {row.default})
end

-- The fates of features that `false` turns off.
local FEATURE = {refused = true, not_yet = true, noted = true}

-- By fate: stores the value of a key, or accepts it, or fails.
local TREATMENTS = {}

function TREATMENTS.mapped(entry, path, value, state)
  if state.given[entry.main] ~= nil then
    fail("%s is given twice: %s is another name of the same key", path, state.names[entry.main])
  end
  state.given[entry.main], state.names[entry.main] = value, path
end

function TREATMENTS.always(entry, path, value, state)
  if agrees(entry.row, value, state.context) then return end
  fail("%s must be %s, got %s: %s; leave the key out", path, expectation(entry.row), shown(value), entry.row[4])
end

function TREATMENTS.refused(entry, path, value)
  if not is_off(entry.row, value) then fail("%s = %s is refused: %s", path, shown(value), entry.row[4]) end
end

function TREATMENTS.not_yet(entry, path, value)
  if not is_off(entry.row, value) then fail("%s = %s is not built yet: %s", path, shown(value), entry.row[4]) end
end

-- Adds the line of a feature that is not done, or fails with context.strict.
local function add_notice(state, path, text)
  if state.context.strict then fail("%s is not done, and strict = true refuses that: %s", path, text) end
  state.notices[#state.notices + 1] = {key = path, text = text}
end

function TREATMENTS.noted(entry, path, value, state)
  if not entry.row.is_in_notice and not is_off(entry.row, value) then add_notice(state, path, entry.row[4]) end
end

local function note(state, entry, path, reason)
  state.notes[#state.notes + 1] = {key = path, fate = entry.fate, reason = reason or entry.text}
end

-- Returns the value for "auto". For some keys of DeepSpeed "auto" itself is a value.
local function inferred(entry, path, state)
  local row = entry.row
  if row.auto then return row.auto(state.context, path, state.given) end
  if row.default == "auto" then return "auto" end
  fail('%s = "auto" cannot be inferred: give a value, or leave the key out', path)
end

local function judge_value(entry, path, value, state)
  local reason
  if value == "auto" then
    value = inferred(entry, path, state)
    if value ~= nil and value ~= "auto" then reason = ('"auto" is %s: %s'):format(shown(value), entry.text) end
  end
  if value ~= nil then value = checked(entry, path, value) end
  if value ~= nil then TREATMENTS[entry.fate](entry, path, value, state) end
  note(state, entry, path, reason)
end

-- Adds a mistake for every key of the table `value` that the block does not have.
local function check_names(block, path, value, state)
  if block.by_name["*"] then return end
  local names = {}
  for index, entry in ipairs(block.entries) do names[index] = entry.key end
  local place = path == "" and "the configuration" or path
  for _, key in ipairs(check.sorted_keys(value)) do
    if not block.by_name[key] then
      state.mistakes:try(path, fail, "%s: unknown key '%s'%s", place, key, core.suggest(key, names))
    end
  end
end

local function is_block_on(block, value, context)
  if type(block.is_on) == "function" then return block.is_on(value, context) end
  local switch = value[block.is_on]
  return block.is_on == nil or switch == true or switch == "auto"
end

local walk

-- Judges a key of a block that is off. Its value has no effect, but its name and type are checked: a mistake should not appear
-- only when the block is turned on.
local function judge_off(entry, path, value, state)
  if entry.block then return walk(entry.block, path, value, state, false) end
  if value ~= "auto" then check_type(entry, path, value) end
  note(state, entry, path, "off")
end

local function judge_key(entry, path, value, state, is_on)
  local means = entry.row.means and entry.row.means[value]
  if means ~= nil then value = means end
  if value == hjson.null then return note(state, entry, path, "null: as if absent") end
  if entry.block and not is_table(value) then
    if value == false and FEATURE[entry.fate] then return note(state, entry, path, "off") end
    fail("%s must be a table of options, got %s", path, shown(value))
  end
  if not is_on then return judge_off(entry, path, value, state) end
  if entry.block and entry.block.whole then
    fail("%s is %s: %s", path, entry.fate == "refused" and "refused" or "not built yet", entry.text)
  end
  if entry.block then return walk(entry.block, path, value, state, true) end
  judge_value(entry, path, value, state)
end

-- Judges every key of the block in the table `value`, whose path is `path`.
function walk(block, path, value, state, is_on)
  check_names(block, path, value, state)
  is_on = is_on and is_block_on(block, value, state.context)
  if is_on and block.fate == "noted" then state.mistakes:try(path, add_notice, state, path, block.text) end
  if block.by_name["*"] then
    for _, key in ipairs(check.sorted_keys(value)) do
      local key_path = path .. "." .. key
      state.mistakes:try(key_path, judge_key, block.by_name["*"], key_path, value[key], state, is_on)
    end
    return
  end
  for _, entry in ipairs(block.entries) do
    if value[entry.key] ~= nil then
      local key_path = path == "" and entry.key or path .. "." .. entry.key
      state.mistakes:try(key_path, judge_key, entry, key_path, value[entry.key], state, is_on)
    end
  end
end

--- Judges the table `config` by `blocks` (keys.lua). Returns the values of mapped keys by their main paths, and the list of notes
-- {key =, fate =, reason =}, and the list {key =, text =} of the features that are not done. Adds every mistake to `mistakes`
-- (mistakes.lua).
function judge.run(blocks, config, context, mistakes)
  local state = {context = context, given = {}, names = {}, notes = {}, notices = {}, mistakes = mistakes}
  walk(blocks[""], "", config, state, true)
  return state.given, state.notes, state.notices
end

return judge
