--- The sum of a matrix and the products B A of its adapters.

local core = require "zt.core"

--- Returns rows [first, first + count) of the sum, in fp32, or in fp64 if the matrix is. rows: these rows of the matrix, whose
-- values may change. adapters: those of the matrix. read(name) returns A and B.
return function(rows, first, adapters, read)
  local dtype = rows:dtype() == "float64" and "float64" or "float32"
  local sums, last = rows:to(dtype), first + rows:size(0)
  for _, adapter in ipairs(adapters) do
    local from, to = math.max(first, adapter.first), math.min(last, adapter.first + adapter.rows)
    if from < to then
      core.scope(function()
        local a = read(adapter.name .. ".a"):to(dtype)
        local b = read(adapter.name .. ".b"):narrow(0, from - adapter.first, to - from):to(dtype)
        sums:narrow(0, from - first, to - from):addmm_(b, a, {alpha = adapter.scale})
      end)
    end
  end
  return sums
end
