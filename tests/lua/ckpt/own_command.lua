-- As `require "support.command" "ckpt"`, within this process, which takes a hundredth of the time of a new one. On several ranks,
-- of which each would be a rank of the command, it is a process.
local zt = require "zt"
local command = require "zt.command"
local process = require "support.command" "ckpt"

local ENDED = {} -- what os.exit raises

-- Calls fn with other values of some global names, and of functions in io and os. Returns what pcall returns.
local function with(globals, of_io, of_os, fn)
  local kept = {}
  local function swap(place, values)
    for name, value in pairs(values) do
      kept[#kept + 1] = {place, name, rawget(place, name)}
      rawset(place, name, value)
    end
  end
  swap(_G, globals)
  swap(io, of_io)
  swap(os, of_os)
  local is_done, failure = pcall(fn)
  for _, each in ipairs(kept) do rawset(each[1], each[2], each[3]) end
  return is_done, failure
end

return function(name, ...)
  if zt.world.size > 1 then return process(name, ...) end
  local parts, status = {}, nil
  local function add(...)
    for _, text in ipairs{...} do parts[#parts + 1] = not status and tostring(text) or nil end
  end
  local sink = {flush = function() end, setvbuf = function() end}
  function sink.write(self, ...)
    add(...)
    return self
  end
  local function print_line(...)
    local words = {...}
    for i = 1, select("#", ...) do words[i] = tostring(words[i]) end
    add(table.concat(words, "\t"), "\n")
  end
  local function exit(code)
    status = status or (code == true and 0 or code == false and 1 or code or 0)
    error(ENDED, 0)
  end
  local is_done, failure = with({arg = {[0] = "ckpt", ...}, print = print_line}, {stdout = sink, stderr = sink, write = add},
                                {exit = exit}, function() command("ckpt " .. name, require("zt.ckpt.cmd." .. name)) end)
  if not is_done and not status then
    add(tostring(failure), "\n")
    status = 1
  end
  return table.concat(parts), status or 0
end
