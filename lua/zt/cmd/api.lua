-- ztoolkit api: lists the names of the public Lua API, one per line, or says what some of them are.
--
--   ztoolkit api                 prints the list
--   ztoolkit api zero.shard step prints what docs/lua.md says of zt.zero.shard and of all methods "step"
--   ztoolkit api --check FILE    compares the list with FILE; status 1 if they differ
--
-- A function ends in (), a method is Type:name(), a field is Type.name. The list leaves out ATen's operators, which zt.ops()
-- returns, and Lua files that scripts do not require.

local zt = require "zt"
local reference = require "zt.help.reference"

local FILE = "tests/lua/api_surface.txt"

local function set_of(list)
  local set = {}
  for _, name in ipairs(list) do set[name] = true end
  return set
end

local OPERATORS = set_of(zt.ops())

-- Adds the fields of a table, and of the tables in it, to `lines`. Leaves out functions of zt that are operators: zt caches an
-- operator when a script first uses it. zt.log is the name of an operator too, but it is a table.
local function add_table(lines, name, fields, seen)
  if seen[fields] then return end
  seen[fields] = true
  for key, value in pairs(fields) do
    if type(key) == "string" and key:sub(1, 1) ~= "_" and not (fields == zt and OPERATORS[key] and type(value) == "function") then
      local full = name .. "." .. key
      if type(value) == "table" then
        add_table(lines, full, value, seen)
      else
        lines[#lines + 1] = full .. (type(value) == "function" and "()" or "")
      end
    end
  end
end

-- Adds the methods and fields of the userdata types, whose metatables the binding keeps in the registry.
local function add_types(lines)
  for _, meta in pairs(debug.getregistry()) do
    local is_type = type(meta) == "table" and rawget(meta, "__name") and rawget(meta, "methods") and rawget(meta, "getters")
    if is_type then
      for method in pairs(meta.methods) do lines[#lines + 1] = ("%s:%s()"):format(meta.__name, method) end
      for getter in pairs(meta.getters) do lines[#lines + 1] = ("%s.%s"):format(meta.__name, getter) end
    end
  end
end

-- Adds the tensor methods, which are the first upvalue of __index in a tensor's metatable.
local function add_tensor_methods(lines)
  local _, methods = debug.getupvalue(debug.getmetatable(zt.tensor {1}).__index, 1)
  for method in pairs(methods) do
    if not OPERATORS[method] then lines[#lines + 1] = ("Tensor:%s()"):format(method) end
  end
end

local function surface()
  local lines, seen = {}, {}
  add_table(lines, "zt", zt, seen)
  for _, name in ipairs(require "zt.host".modules()) do add_table(lines, name, require(name), seen) end
  add_types(lines)
  add_tensor_methods(lines)
  table.sort(lines)
  return lines
end

-- Compares the lines of the file `path` with the list `found`. Returns the changes: "- name" is missing, "+ name" is new.
local function difference(path, found)
  local wanted = {}
  for line in zt.fs.read(path):gmatch("[^\n]+") do wanted[#wanted + 1] = line end
  local is_found, is_wanted, changes = set_of(found), set_of(wanted), {}
  for _, line in ipairs(wanted) do
    if not is_found[line] then changes[#changes + 1] = "- " .. line end
  end
  for _, line in ipairs(found) do
    if not is_wanted[line] then changes[#changes + 1] = "+ " .. line end
  end
  return changes
end

-- Returns lines of at most `width` columns, each after `indent`.
local function wrapped(text, width, indent)
  local lines, line = {}, indent
  for word in text:gmatch "%S+" do
    if #line > #indent and #line + #word + 1 > width then
      lines[#lines + 1], line = line, indent
    end
    line = line .. (#line > #indent and " " or "") .. word
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local function print_entry(entry)
  local width = math.max(60, math.min(zt.terminal_width(), 128))
  local text = entry.text:gsub("%[([^%]]*)%]%([^)]*%)", "%1"):gsub("%*", "") -- links, and emphasis
  print(("%s\n%s"):format(entry.code, wrapped(text, width, "  ")))
  if entry.example then print(("  example: %s"):format(entry.example)) end
end

-- Prints the entries of these names. Ends with status 1 if one of them is unknown.
local function explain(names)
  local entries, is_known = reference.read(), true
  for _, name in ipairs(names) do
    local found, hint = reference.find(entries, name)
    for _, entry in ipairs(found or {}) do print_entry(entry) end
    if not found then
      is_known = false
      local bare = name:gsub("^zt%.", "")
      if OPERATORS[bare] then hint = (": it is an operator of LibTorch, zt.%s(...) or x:%s(...)"):format(bare, bare) end
      io.stderr:write(("api: the Lua API has no '%s'%s\n"):format(name, hint))
    end
  end
  if not is_known then os.exit(1) end
end

if arg[1] == "--help" then
  print "usage: ztoolkit api [NAME... | --check FILE]"
  print "prints the names of the public Lua API, says what some of them are, or compares all with a file"
elseif arg[1] == "--check" and arg[2] then
  local changes = difference(arg[2], surface())
  if #changes > 0 then
    print(table.concat(changes, "\n"))
    print(("the public names are not those in %s: if this change is intended, update the file:"):format(arg[2]))
    print("  ztoolkit api > " .. FILE)
    os.exit(1)
  end
  print("the public names are as listed")
elseif arg[1] and arg[1]:sub(1, 1) == "-" then
  io.stderr:write(("api: unknown argument '%s': give names, --check FILE, or nothing\n"):format(arg[1]))
  os.exit(2)
elseif arg[1] then
  explain(arg)
else
  print(table.concat(surface(), "\n"))
end
