--- Numbers as people read them.

local text = {}

local function scaled(value, step, units, suffix)
  local index = 1
  while math.abs(value) >= step and index < #units do
    value, index = value / step, index + 1
  end
  local digits = (index == 1 and value == math.floor(value)) and "%d" or (math.abs(value) < 100 and "%.1f" or "%.0f")
  return digits:format(value) .. units[index] .. suffix
end

--- 41234 -> "41.2 k".
function text.count(value) return scaled(value, 1000, {"", " k", " M", " G", " T"}, "") end

--- 3355443 bytes -> "3.2 MiB".
function text.bytes(value) return scaled(value, 1024, {" B", " KiB", " MiB", " GiB", " TiB"}, "") end

--- 75 seconds -> "1:15"; from an hour on "2:03:04".
function text.duration(seconds)
  local whole = math.floor(math.max(seconds, 0) + 0.5)
  local hours, minutes = math.floor(whole / 3600), math.floor(whole / 60) % 60
  if hours > 0 then return ("%d:%02d:%02d"):format(hours, minutes, whole % 60) end
  return ("%d:%02d"):format(minutes, whole % 60)
end

--- Rows of cells (strings or numbers) as lines of aligned columns: the first to the left, the others to the right.
function text.columns(rows)
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

return text
