--- Items of prompts: what a record says beside its prompt, for rewards. They are plain values, and tables of them, with any keys:
-- a list of a JSON file may have a null, which leaves a hole.

local check = require "zt.check"
local fail = require "zt.fail"

local items = {}

local PLAIN = {["nil"] = true, boolean = true, number = true, string = true}

--- Returns a copy, with copies of all tables in it. copies: of the tables so far, since one may stand in several places.
function items.copied(item, copies)
  if type(item) ~= "table" then return item end
  copies = copies or {}
  if copies[item] then return copies[item] end
  local copy = setmetatable({}, getmetatable(item))
  copies[item] = copy
  for key, value in pairs(item) do copy[key] = items.copied(value, copies) end
  return copy
end

--- Returns whether two items say the same. within: the tables of the first that are being compared.
function items.are_equal(one, other, within)
  if type(one) ~= "table" or type(other) ~= "table" then return one == other or (one ~= one and other ~= other) end
  within = within or {}
  if one == other or within[one] then return true end
  within[one] = true
  for key, value in pairs(one) do
    if not items.are_equal(value, other[key], within) then return false end
  end
  for key in pairs(other) do
    if one[key] == nil then return false end
  end
  within[one] = nil
  return true
end

--- Returns an item as a list that can be sent to other ranks: {value}, {"nan" or the like, "number"} of a number that is not
-- finite, or {{keys}, {values, each as such a list}}. Fails for what cannot be sent. path: where the item is, for the message;
-- within: the tables around it.
function items.packed(item, path, within)
  if type(item) == "number" and item - item ~= 0 then return {tostring(item), "number"} end
  if PLAIN[type(item)] then return {item} end
  within = within or {}
  if type(item) ~= "table" or within[item] then
    fail("%s is %s, and other ranks, which judge some of the answers, need it, too: give numbers, texts, booleans and tables of "
      .. "them, or keep it in the reward function", path, within[item] and "a table inside itself" or check.type_name(item))
  end
  within[item] = true
  local keys, values = {}, {}
  for key, value in pairs(item) do
    local name = ("%s[%s]"):format(path, type(key) == "string" and ("%q"):format(key) or tostring(key))
    if not PLAIN[type(key)] then fail("%s: a key of an item must be a number, a text or a boolean", name) end
    keys[#keys + 1], values[#values + 1] = key, items.packed(value, name, within)
  end
  within[item] = nil
  return {keys, values}
end

--- Returns the item of such a list.
function items.unpacked(sent)
  local keys, values = sent[1], sent[2] -- or a value
  if type(keys) ~= "table" then return values and tonumber(keys) or keys end
  local item = {}
  for i, key in ipairs(keys) do item[key] = items.unpacked(values[i]) end
  return item
end

return items
