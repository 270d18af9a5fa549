--- Checks the regular expressions of `only` and `map`. One that is found in no name would load nothing, or rename nothing: it is
-- misspelt.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local native = require "zt.ckpt"
local text = require "zt.text"

local patterns = {}

-- Returns whether the expression is found in one of the names. Replacing what is found changes a name.
local function is_found(what, pattern, names)
  local is_expression, changed = pcall(native.renamed, names, {[pattern] = "\1"})
  if not is_expression then error((tostring(changed):gsub("map: ", what .. ": ", 1)), 0) end
  for place, name in ipairs(changed) do
    if name ~= names[place] then return true end
  end
  return false
end

-- Returns the beginnings of names up to the first '/', or all names if they have none, each once and sorted.
local function beginnings(names)
  local set = {}
  for _, name in ipairs(names) do set[name:match "^[^/]*/" or name] = true end
  return check.sorted_keys(set)
end

-- Returns all parts of names from their start to a '/' or '.'.
local function starts(names)
  local set = {}
  for _, name in ipairs(names) do
    for stop in (name .. "."):gmatch "()[/.]" do set[name:sub(1, stop - 1)] = true end
  end
  return check.sorted_keys(set)
end

-- Returns which names may be meant: those that hold the expression elsewhere than at their start, or the nearest.
local function near(what, pattern, names)
  local anywhere = pattern:gsub("^%^", "")
  for _, name in ipairs(anywhere ~= pattern and names or {}) do
    if is_found(what, anywhere, {name}) then return (": without '^' it would be found in '%s'"):format(name) end
  end
  local plain = anywhere:gsub("[\\%[%]$]", ""):gsub("[/.]+$", "")
  return core.suggest(plain, starts(names)):match "^: did you mean.*" or ""
end

local function refuse(what, pattern, names, of)
  fail("%s: '%s' is found in no name of %s, so it has no effect. Names begin with %s%s", what, pattern, of,
       text.some(beginnings(names)), near(what, pattern, names))
end

--- Returns the names after the replacements of `map`. Fails if one of its expressions is found in no name. `what` and `of` are
-- the option and whose names these are, for the message.
function patterns.renamed(what, names, map, of)
  for _, pattern in ipairs(check.sorted_keys(map)) do -- as the binding does: in this order, one after the other
    if not is_found(what, pattern, names) then refuse(what, pattern, names, of) end
    names = native.renamed(names, {[pattern] = map[pattern]})
  end
  return names
end

--- Fails if an expression of the list `only` is found neither in `names` nor in `others`. `of`: whose names these are.
function patterns.check(what, names, only, others, of)
  for _, pattern in ipairs(only) do
    if not is_found(what, pattern, names) and not is_found(what, pattern, others) then refuse(what, pattern, names, of) end
  end
end

return patterns
