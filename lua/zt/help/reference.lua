--- The entries of docs/lua.md: the rows of its tables whose first cell is a name of the API.

local core = require "zt.core"
local fail = require "zt.fail"

local reference = {}

-- share/ztoolkit/lua/zt/help/reference.lua -> share/ztoolkit/docs/lua.md
local FILE = debug.getinfo(1, "S").source:match("^@(.*)lua/zt/help/[^/]*$") .. "docs/lua.md"

-- `zt.nn.linear{in, out}` -> "zt.nn.linear()", `Axis.rank` -> "Axis.rank". Returns nil if `code` does not begin with a name of
-- the API. `with_objects`: methods and fields of objects of the Lua library, `run:log(step, values)`, are names, too.
local function name_of(code, with_objects)
  if code == "Mesh.*" then return code end
  local name, rest = code:match "^([%a][%w_.:]*)(.*)$"
  local is_name = name and (name:match "^zt%." or name:match "^%u%w*[.:]%l" or with_objects and name:match "^%l%w*[.:]%l")
  if not is_name then return nil end
  return name .. (rest:match "^[({]" and "()" or "")
end

-- Adds the entries of a row of a table of fields: "| `full`, `grad` | what |" has two.
local function add_fields(entries, record, row, number)
  local cell, text = row:match "^| (`.-) | (.*) |$"
  for field in (cell or ""):gmatch "`([%w_.]+)`" do
    entries[#entries + 1] = {name = record .. field, code = record .. field, text = text, line = number}
  end
end

--- Returns the entries of a document as a list of {name, code, text, example, line}. `with_objects`: also those of objects that
--- the Lua library makes, such as runs and engines, which the list of the API lacks, and of what functions of scripts are given:
--- a table with the head `ctx.unit.` lists the fields of `ctx.unit`.
function reference.entries(document, with_objects)
  local entries, number, record = {}, 0, nil
  for line in (document .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    if not line:find "^|" then record = nil end
    if record and with_objects then add_fields(entries, record, line, number) end
    record = record or line:match "^| `(%l[%l.]*%.)` |"
    local code, rest = line:match(with_objects and "^| `([^`]+)`[^|]* |(.*)$" or "^| `([^`]+)` |(.*)$")
    local name = code and name_of(code, with_objects)
    if name then
      local text, example = rest:match "^ (.-) | `([^`]+)` |$"
      entries[#entries + 1] = {
        name = name, code = code, text = text or rest:match "^ (.-) |$" or rest, example = example, line = number,
      }
    end
  end
  return entries
end

--- Returns the entries of docs/lua.md.
function reference.read()
  local file = io.open(FILE)
  if not file then fail("there is no %s: it comes with ztoolkit, beside its Lua files", FILE) end
  local document = file:read "*a"
  file:close()
  return reference.entries(document, true)
end

-- "zt.zero.shard()" -> "zero.shard", "trainer:costs" and "Trainer:costs()" -> "trainer.costs": people write names with or without
-- zt, parentheses and the capital of a type.
local function plain(name)
  return (name:gsub("%(%)$", ""):gsub("^zt%.", ""):gsub(":", "."):gsub("^%u%w*%.", string.lower))
end

--- Returns the entries that `name` means: that of this name, or those whose last part it is, such as "shard" or "step", or
--- those of a type or record of that name, such as "Simulation" or "unit". If there are none, returns nil and the
--- nearest name, or an empty string.
function reference.find(entries, name)
  local wanted, exact, ends, begins, names = plain(name), {}, {}, {}, {}
  for _, entry in ipairs(entries) do
    local own = plain(entry.name)
    if own == wanted then exact[#exact + 1] = entry end
    if own:match "[^.]*$" == wanted then ends[#ends + 1] = entry end
    if own:sub(1, #wanted + 1) == wanted:lower() .. "." then begins[#begins + 1] = entry end
    names[#names + 1] = entry.name:gsub("%(%)$", ""):gsub("^zt%.", "")
  end
  if #exact > 0 then return exact end
  if #ends > 0 then return ends end
  if #begins > 0 then return begins end
  return nil, core.suggest(wanted, names)
end

return reference
