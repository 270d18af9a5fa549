-- ztoolkit ckpt diff: compares two checkpoints, tensor by tensor.

local cli = require "zt.cli"
local core = require "zt.core"
local folder_of = require "zt.ckpt.cmd.folder"
local native = require "zt.ckpt"
local text = require "zt.text"

local function by_name(description)
  local found = {}
  for _, tensor in ipairs(description.tensors) do found[tensor.name] = tensor end
  return found
end

local function has_same_bits(x, y)
  local bits = x:dtype():match "^b?float(%d+)"
  if bits then x, y = core.op "view"(x, {dtype = "int" .. bits}), core.op "view"(y, {dtype = "int" .. bits}) end
  return core.op "equal"(x, y)
end

-- Returns in words how two tensors differ, or nil. Holds both in memory.
local function difference(a, b, left, right)
  if text.shape(left.shape) ~= text.shape(right.shape) then
    return ("%s, %s"):format(text.shape(left.shape), text.shape(right.shape))
  end
  local x, y = a:read(left.name), b:read(right.name)
  if left.dtype == right.dtype and has_same_bits(x, y) then return nil end
  if x:numel() == 0 then return ("%s, %s"):format(left.dtype, right.dtype) end
  local differ = x:ne(y):logical_and(x:eq(x):logical_or(y:eq(y))) -- two nans count as equal
  local count = differ:sum():item()
  if count == 0 and left.dtype ~= right.dtype then return ("equal values of %s and %s"):format(left.dtype, right.dtype) end
  if count == 0 then return "equal except for the bits of zeros or nans" end
  local largest = (x:to "float64" - y:to "float64"):abs():masked_fill(differ:logical_not(), 0):max():item()
  return ("largest difference %.3g, of %d in %d elements"):format(largest, count, x:numel())
end

local function compare_values(a, b, rows)
  local left, right, names = a.values, b.values, {}
  for name in pairs(left) do names[name] = true end
  for name in pairs(right) do names[name] = true end
  for name in pairs(names) do
    local is_same = name == "script" or core.json.encode{left[name]} == core.json.encode{right[name]}
    if not is_same then rows[#rows + 1] = {name, "differs"} end
  end
end

return function()
  local o = cli{
    name = "ckpt diff", usage = "ztoolkit ckpt diff",
    about = "Compares two checkpoints tensor by tensor, whatever layouts they were saved on. Status 1 if they differ.",
    options = {}, positional = {{"a", "a checkpoint's folder, or a run's"}, {"b", "another one"}},
  }
  local a, b = native.open(folder_of(o.a)), native.open(folder_of(o.b))
  local left, right = a:describe(), b:describe()
  local in_a, in_b, rows, equal = by_name(left), by_name(right), {}, 0
  for _, tensor in ipairs(left.tensors) do
    local other = in_b[tensor.name]
    local found = other and difference(a, b, tensor, other) or (not other and "in the first only") or nil
    if found then rows[#rows + 1] = {tensor.name, found} else equal = equal + 1 end
  end
  for _, tensor in ipairs(right.tensors) do
    if not in_a[tensor.name] then rows[#rows + 1] = {tensor.name, "in the second only"} end
  end
  compare_values(left, right, rows)
  table.sort(rows, function(x, y) return x[1] < y[1] end)
  if #rows > 0 then print(text.columns(rows)) end
  print(("%d tensors are equal, %d tensors or values differ"):format(equal, #rows))
  if #rows > 0 then os.exit(1) end
end
