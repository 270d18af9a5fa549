--- zt.deepspeed.hjson: reads JSON and some extensions that people write: comments (`//` and `#` to the end of the line, `/* */`),
-- keys without quotes, a comma after the last entry, and no comma between entries on different lines. Values stay JSON: text
-- needs quotes. `Infinity` is a number, as in Python's JSON.
--
--   local value = hjson.decode('{train_batch_size: 32,  # all ranks\n}', "ds_config.json")
--
-- A mistake is an error "ds_config.json:2:7: what is wrong". A key given twice in one table is a mistake.

local fail = require "zt.fail"

local hjson = {}

--- Stands for `null`, so that a null key and an absent key differ.
hjson.null = setmetatable({}, {__tostring = function() return "null" end})

local ESCAPES = {['"'] = '"', ["\\"] = "\\", ["/"] = "/", b = "\b", f = "\f", n = "\n", r = "\r", t = "\t"}
local WORDS = {["true"] = true, ["false"] = false, null = hjson.null, Infinity = math.huge}
local MAX_DEPTH = 200 -- nested tables; some thousands would overflow Lua's stack, with a message that does not name the cause

local function line_of(reader, at)
  local line, begin = 1, 1
  for newline in reader.text:sub(1, at - 1):gmatch("()\n") do line, begin = line + 1, newline + 1 end
  return line, at - begin + 1
end

local function complain(reader, at, message, ...)
  local line, column = line_of(reader, at)
  fail("%s:%d:%d: %s", reader.name, line, column, message:format(...))
end

-- Returns the character at the reader's position, for messages.
local function found(reader)
  local char = reader.text:match("^[%z\1-\127\194-\244][\128-\191]*", reader.at) or reader.text:sub(reader.at, reader.at)
  return char == "" and "the end of the text" or "'" .. char .. "'"
end

-- Skips white space and comments. Returns whether they contain the end of a line.
local function skip(reader)
  local begin, text = reader.at, reader.text
  while true do
    reader.at = text:find("[^ \t\r\n]", reader.at) or #text + 1
    local two = text:sub(reader.at, reader.at + 1)
    if two:sub(1, 1) == "#" or two == "//" then
      reader.at = text:find("\n", reader.at, true) or #text + 1
    elseif two == "/*" then
      local _, last = text:find("*/", reader.at + 2, true)
      if not last then complain(reader, reader.at, "this comment has no end: close it with */") end
      reader.at = last + 1
    else
      return text:sub(begin, reader.at - 1):find("\n", 1, true) ~= nil
    end
  end
end

local function utf8(code)
  if code < 0x80 then return string.char(code) end
  local tail = {}
  local limit = 0x40
  repeat
    table.insert(tail, 1, string.char(0x80 + code % 0x40))
    code = math.floor(code / 0x40)
    limit = limit / 2
  until code < limit
  return string.char(0x100 - 2 * limit + code) .. table.concat(tail)
end

-- Reads the \uXXXX escape at the reader's position and returns the character in UTF-8. A surrogate pair makes one character.
local function read_unicode(reader)
  local text, at = reader.text, reader.at
  local high = tonumber(text:match("^\\u(%x%x%x%x)", at) or "", 16)
  if not high then complain(reader, at, "\\u needs four hexadecimal digits") end
  reader.at = at + 6
  if high < 0xD800 or high > 0xDFFF then return utf8(high) end
  local low = tonumber(text:match("^\\u([dD][c-fC-F]%x%x)", at + 6) or "", 16)
  if high > 0xDBFF or not low then complain(reader, at, "half of a pair of \\u escapes: the other half is missing") end
  reader.at = at + 12
  return utf8(0x10000 + (high - 0xD800) * 0x400 + low - 0xDC00)
end

local function read_string(reader)
  local text, begin, parts = reader.text, reader.at, {}
  reader.at = begin + 1
  while true do
    local plain = text:match('^[^"\\%c]*', reader.at)
    parts[#parts + 1], reader.at = plain, reader.at + #plain
    local char, escape = text:sub(reader.at, reader.at), text:sub(reader.at + 1, reader.at + 1)
    if char == '"' then
      reader.at = reader.at + 1
      return table.concat(parts)
    elseif char == "\\" and escape == "u" then
      parts[#parts + 1] = read_unicode(reader)
    elseif char == "\\" and ESCAPES[escape] then
      parts[#parts + 1], reader.at = ESCAPES[escape], reader.at + 2
    elseif char == "\\" and escape ~= "" then
      complain(reader, reader.at, "unknown escape '\\%s': write \\\\ for a backslash", escape)
    else
      complain(reader, begin, "this text has no closing quote on its line")
    end
  end
end

-- Returns whether `word` is a number of JSON: no leading zeros, digits on both sides of the point.
local function is_number(word)
  local rest = word:match("^%-?0(.*)$") or word:match("^%-?[1-9]%d*(.*)$")
  return rest and rest:gsub("^%.%d+", ""):gsub("^[eE][+-]?%d+", "") == ""
end

local function read_number(reader)
  local word = reader.text:match("^[%w.+-]+", reader.at)
  if not is_number(word) then complain(reader, reader.at, "'%s' is not a JSON number", word) end
  local value = tonumber(word)
  if math.abs(value) == math.huge then complain(reader, reader.at, "the number %s is too large", word) end
  reader.at = reader.at + #word
  return value
end

local function read_word(reader)
  local word = reader.text:match("^[%a_][%w_.-]*", reader.at)
  if not word then complain(reader, reader.at, "a value is expected here, found %s", found(reader)) end
  if WORDS[word] == nil then
    complain(reader, reader.at, "'%s' is no value: text needs quotes, as in \"%s\"; values are true, false and null", word, word)
  end
  reader.at = reader.at + #word
  return WORDS[word]
end

local read_value

-- Reads a key and the ':' after it. `places` holds the line of each key so far.
local function read_key(reader, places)
  local at = reader.at
  local key
  if reader.text:sub(at, at) == '"' then
    key = read_string(reader)
  else
    key = reader.text:match("^[%w_$.-]+", at)
    if not key then complain(reader, at, "a key or '}' is expected here, found %s", found(reader)) end
    reader.at = at + #key
  end
  if places[key] then complain(reader, at, "the key '%s' is given twice: it stands on line %d already", key, places[key]) end
  places[key] = line_of(reader, at)
  skip(reader)
  if reader.text:sub(reader.at, reader.at) ~= ":" then
    complain(reader, reader.at, "':' is expected after the key '%s', found %s", key, found(reader))
  end
  reader.at = reader.at + 1
  skip(reader)
  return key
end

-- Reads entries up to `closing`. Calls entry() at the start of each.
local function read_entries(reader, closing, depth, entry)
  if depth > MAX_DEPTH then complain(reader, reader.at, "tables are nested more than %d deep", MAX_DEPTH) end
  local begin = reader.at
  reader.at = begin + 1
  skip(reader)
  while reader.text:sub(reader.at, reader.at) ~= closing do
    if reader.at > #reader.text then complain(reader, begin, "this '%s' is not closed", reader.text:sub(begin, begin)) end
    entry()
    local is_new_line = skip(reader)
    local char = reader.text:sub(reader.at, reader.at)
    if char == "," then
      reader.at = reader.at + 1
      skip(reader)
    elseif char ~= closing and char ~= "" and not is_new_line then
      complain(reader, reader.at, "',' or '%s' is expected here, found %s", closing, found(reader))
    end
  end
  reader.at = reader.at + 1
end

function read_value(reader, depth)
  local char = reader.text:sub(reader.at, reader.at)
  local out, places = {}, {}
  if char == "{" then
    read_entries(reader, "}", depth, function()
      local key = read_key(reader, places)
      out[key] = read_value(reader, depth + 1)
    end)
    return out
  elseif char == "[" then
    read_entries(reader, "]", depth, function() out[#out + 1] = read_value(reader, depth + 1) end)
    return out
  elseif char == '"' then
    return read_string(reader)
  elseif char:match("[%d-]") then
    return read_number(reader)
  end
  return read_word(reader)
end

--- Returns the value in `text`: a table, a string, a number, a boolean or hjson.null. `name` is the start of error messages.
function hjson.decode(text, name)
  local reader = {text = text:gsub("^\239\187\191", ""), at = 1, name = name or "json"}
  skip(reader)
  local value = read_value(reader, 1)
  skip(reader)
  if reader.at <= #reader.text then complain(reader, reader.at, "nothing may follow the value, found %s", found(reader)) end
  return value
end

--- Returns whether `text` is a JSON table rather than the name of a file: its first character after comments is '{'.
function hjson.is_table(text)
  local reader = {text = text:gsub("^\239\187\191", ""), at = 1, name = "json"}
  skip(reader)
  return reader.text:sub(reader.at, reader.at) == "{"
end

return hjson
