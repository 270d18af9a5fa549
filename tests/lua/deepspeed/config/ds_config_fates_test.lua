-- Tests zt.deepspeed.config: the fate of every key. A mapped key changes the result, a key that is always so does not, and a
-- refused key or one that is not built yet is an error. A noted key is an error with strict.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ds = require "zt.deepspeed.config"
local keys = require "zt.deepspeed.keys"
local values = require "support.ds_values"

local function read(entry, value)
  local is_done, config = pcall(ds.read, values.configuration(entry, value), {world = 4, optimizer = {lr = 1}})
  if not is_done then return nil, config end
  local notes, schedule = config.notes, config.schedule
  config.notes = nil
  if schedule then -- compare schedules by their rates, not by their options
    config.schedule = {}
    for updates = 0, 30 do config.schedule[updates + 1] = schedule.rate(updates) end
  end
  return zt.json.encode(config), nil, notes
end

-- Mapped keys that are only compared with others.
local CHECKED = {["data_types.param_dtype"] = true, ["tensor_parallel.dtype"] = true}

local TestFates = {}

function TestFates:test_every_mapped_key_changes_the_result()
  for _, entry in ipairs(keys.list) do
    if entry.fate == "mapped" and not entry.block and not CHECKED[entry.main] then
      local without = read(entry, nil)
      local seen, count = {[without or ""] = true}, without and 1 or 0
      for _, value in ipairs(values.candidates(entry)) do
        local result = read(entry, value)
        if result and not seen[result] then seen[result], count = true, count + 1 end
      end
      lu.assertTrue(count >= 2, entry.path)
    end
  end
end

function TestFates:test_every_key_that_is_always_so_changes_nothing()
  for _, entry in ipairs(keys.list) do
    if entry.fate == "always" and not entry.block then
      local without, accepted = read(entry, nil), 0
      for _, value in ipairs(values.candidates(entry)) do
        local result, _, notes = read(entry, value)
        if result then
          accepted = accepted + 1
          lu.assertEquals(result, without, entry.path)
          lu.assertStrContains(zt.json.encode(notes), '"fate":"always"')
        end
      end
      lu.assertTrue(accepted > 0, entry.path)
    end
  end
end

-- Returns whether a block above the key is refused or not built yet, as a whole or by its switch. Then the error does not name
-- the key.
local function is_shadowed(entry)
  local block = keys.blocks[""]
  for name in entry.path:gmatch "([^.]+)%." do
    local above = block.by_name[name]
    block = above.block
    if block.whole or block.is_on and above.fate ~= "mapped" then return true end
  end
  return false
end

local function path_of(entry) return (entry.path:gsub("%*", "seqlen")) end

function TestFates:test_every_refused_key_is_refused_and_off_by_null()
  local says = {refused = " is refused: ", not_yet = " is not built yet: "}
  for _, entry in ipairs(keys.list) do
    if says[entry.fate] and not entry.block then
      local is_alone, refused = not is_shadowed(entry), 0
      for _, value in ipairs(values.candidates(entry)) do
        local _, message = read(entry, value)
        local is_refused = message and message:find(says[entry.fate], 1, true)
        if is_refused and (not is_alone or message:find(path_of(entry) .. " = ", 1, true)) then refused = refused + 1 end
      end
      lu.assertTrue(refused > 0, entry.path)
      -- cycle_momentum is the exception: without it OneCycle would change the momentum, which is an error.
      if is_alone and entry.key ~= "cycle_momentum" then lu.assertNotNil(read(entry, ds.null), entry.path) end
    end
  end
end

-- A value that turns on a noted key changes nothing else, and strict refuses it.
function TestFates:test_every_noted_key_is_noted()
  for _, entry in ipairs(keys.list) do
    if entry.fate == "noted" and not entry.block then
      local noted = 0
      for _, value in ipairs(values.candidates(entry)) do
        local source = values.configuration(entry, value)
        local is_done, config = pcall(ds.read, source, {world = 4})
        if is_done and #config.notices > 0 then
          noted = noted + 1
          lu.assertErrorMsgContains("is not done, and strict = true refuses that: ", ds.read, source, {world = 4, strict = true})
        elseif is_done then
          ds.read(source, {world = 4, strict = true})
        end
      end
      lu.assertTrue(noted > 0, entry.path)
    end
  end
end

function TestFates:test_a_wrong_type_is_an_error_with_the_path()
  local count = 0
  for _, entry in ipairs(keys.list) do
    if entry.type ~= "any" and not is_shadowed(entry) then
      local _, message = read(entry, function() end)
      lu.assertStrContains(message, path_of(entry) .. " must be ")
      count = count + 1
    end
  end
  lu.assertTrue(count > 200)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestFates", TestFates}})
