--- zt.memory_text: the memory of the ranks by kind, predicted and measured, as text.

local check = require "zt.check"
local text = require "zt.text"

local function shown(bytes) return bytes and bytes >= 0 and text.bytes(bytes) or "-" end

--- Returns trainer:memory() as a text table, with one column of measured bytes per rank of `ranks` (an axis, or mesh:world()).
-- Then the call is collective. Without `ranks` the table shows this rank only.
local function memory_text(trainer, ranks)
  check.argument("zt.memory_text", "the first argument", "Trainer", trainer)
  if ranks ~= nil then check.argument("zt.memory_text", "the second argument", "Axis", ranks) end
  local own = trainer:memory()
  local all = ranks and ranks:gather_values(own) or {own}
  local kinds, rows = text.memory_kinds(own), {{"kind", "predicted"}}
  for rank = 0, #all - 1 do table.insert(rows[1], #all > 1 and ("rank %d"):format(rank) or "measured") end
  for _, kind in ipairs(kinds) do
    local row = {kind, shown(own[kind].predicted)}
    for _, held in ipairs(all) do row[#row + 1] = shown((held[kind] or {}).measured) end
    rows[#rows + 1] = row
  end
  return text.columns(rows)
end

return memory_text
