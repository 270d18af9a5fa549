--- Formats numbers and tables for people.

local check = require "zt.check"
local core = require "zt.core"

local text = {}

local UNITS = {"", " k", " M", " G", " T"}

--- 41234 -> "41.2 k".
function text.count(value)
  check.argument("zt.text.count", "the argument", "number", value)
  local index = 1
  while math.abs(value) >= 1000 and index < #UNITS do
    value, index = value / 1000, index + 1
  end
  local digits = (index == 1 and value == math.floor(value)) and "%d" or (math.abs(value) < 100 and "%.1f" or "%.0f")
  return digits:format(value) .. UNITS[index]
end

--- 3355443 bytes -> "3.2 MiB".
text.bytes = core.human_bytes

--- 75 seconds -> "1:15". One hour and more -> "2:03:04".
function text.duration(seconds)
  check.argument("zt.text.duration", "the argument", "number", seconds)
  local whole = math.floor(math.max(seconds, 0) + 0.5)
  local hours, minutes = math.floor(whole / 3600), math.floor(whole / 60) % 60
  if hours > 0 then return ("%d:%02d:%02d"):format(hours, minutes, whole % 60) end
  return ("%d:%02d"):format(minutes, whole % 60)
end

--- {2, 3} -> "[2, 3]".
function text.shape(sizes)
  check.items("zt.text.shape: the sizes", "number", sizes)
  return "[" .. table.concat(sizes, ", ") .. "]"
end

--- {"a", "b", "c", "d"} -> "a, b, c and 1 more": the first three and the number of the others.
function text.some(names)
  check.items("zt.text.some: the names", "string", names)
  local most = 3
  if #names <= most then return table.concat(names, ", ") end
  return ("%s and %d more"):format(table.concat(names, ", ", 1, most), #names - most)
end

--- Returns rows of cells (strings or numbers) as lines with aligned columns. The first column is left-aligned, the others are
-- right-aligned.
function text.columns(rows)
  check.items("zt.text.columns: the rows", "list", rows)
  local widths = {}
  for _, row in ipairs(rows) do
    for column, cell in ipairs(row) do widths[column] = math.max(widths[column] or 0, #tostring(cell)) end
  end
  local lines = {}
  for index, row in ipairs(rows) do
    local cells = {}
    for column, cell in ipairs(row) do
      local pad = (" "):rep(widths[column] - #tostring(cell))
      cells[column] = column == 1 and cell .. pad or pad .. cell
    end
    lines[index] = (table.concat(cells, "  "):gsub("%s+$", ""))
  end
  return table.concat(lines, "\n")
end

-- Kinds of memory that are not the device's, and no part of its total.
local ELSEWHERE = {"host", "files"}

--- Returns the kinds of a memory table (trainer:memory()) in the order of tables, and which of them lie elsewhere: those in the
--- device's memory by name, their total, and then what lies elsewhere.
function text.memory_kinds(memory)
  local names, elsewhere = {}, {total = false}
  for _, name in ipairs(ELSEWHERE) do elsewhere[name] = true end
  for name in pairs(memory) do
    if elsewhere[name] == nil then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs{"total", ELSEWHERE[1], ELSEWHERE[2]} do
    if memory[name] then names[#names + 1] = name end
  end
  return names, elsewhere
end

return text
