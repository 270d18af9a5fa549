-- ztoolkit ckpt show: lists the tensors and values of a checkpoint.

local cli = require "zt.cli"
local core = require "zt.core"
local fail = require "zt.fail"
local folder_of = require "zt.ckpt.cmd.folder"
local native = require "zt.ckpt"
local text = require "zt.text"

-- Reads a tensor and returns its minimum, maximum, mean and norm as text.
local function statistics(checkpoint, tensor)
  local values = checkpoint:read(tensor.name):to "float64"
  if values:numel() == 0 then return {"", "", "", ""} end
  local found = {}
  for index, value in ipairs {values:min(), values:max(), values:mean(), values:norm()} do
    found[index] = ("%.4g"):format(value:item())
  end
  return found
end

local function tensor_rows(checkpoint, description, options)
  local rows = {{"tensor", "type", "shape", "size", "pieces"}}
  if options.statistics then
    for _, name in ipairs {"min", "max", "mean", "norm"} do table.insert(rows[1], name) end
  end
  for _, tensor in ipairs(description.tensors) do
    if tensor.name:find(options.only, 1, true) then
      local row = {tensor.name, tensor.dtype, text.shape(tensor.shape), text.bytes(tensor.bytes), tensor.pieces}
      if options.statistics then
        for _, value in ipairs(statistics(checkpoint, tensor)) do row[#row + 1] = value end
      end
      rows[#rows + 1] = row
    end
  end
  return rows
end

-- Returns a line for each value. Values are as long as they are: only their names are padded.
local function value_lines(values, only)
  local names, width, lines = {}, 0, {}
  for name in pairs(values) do
    if name ~= "script" and name:find(only, 1, true) then
      names[#names + 1], width = name, math.max(width, #name)
    end
  end
  table.sort(names)
  for index, name in ipairs(names) do
    lines[index] = ("%s%s  %s"):format(name, (" "):rep(width - #name), core.json.encode(values[name]))
  end
  return lines
end

return function()
  local o = cli{
    name = "ckpt show", usage = "ztoolkit ckpt show", about = "Lists tensors and values of a checkpoint.",
    options = {
      {"only", "", "lists only names that contain this text"},
      {"statistics", false, "adds minimum, maximum, mean and norm of each tensor, which it reads for that"},
      {"json", false, "prints everything as JSON, without statistics"},
    },
    positional = {{"checkpoint", "a checkpoint's folder, or a run's folder for its latest one"}},
  }
  if o.json and (o.statistics or o.only ~= "") then
    io.stderr:write "ckpt show: --json prints all as it is saved: leave out --only and --statistics\n"
    os.exit(2)
  end
  local folder = folder_of(o.checkpoint)
  local checkpoint = native.open(folder)
  local description = checkpoint:describe()
  if o.json then
    print(core.json.encode(description))
    return
  end
  local rows, values = tensor_rows(checkpoint, description, o), value_lines(description.values, o.only)
  if #rows == 1 and #values == 0 and o.only ~= "" then
    fail("no tensor or value of '%s' has '%s' in its name: leave out --only to see all names", folder, o.only)
  end
  print(folder)
  print(text.columns(rows))
  if #values > 0 then print("\n" .. table.concat(values, "\n")) end
end
