--- Guards the members of a class. A call without the object, as by run.log(step) instead of run:log(step), says that ":" is
-- missing. Reading an unknown member is an error that names the nearest one. Call it after the last method is defined. `name` is
-- how scripts call an object. `optional` lists the fields that may be nil; without it unknown members stay nil.

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"

local function guard_calls(of, name)
  local guarded = {}
  for key, method in pairs(of) do
    if type(method) == "function" and key:sub(1, 2) ~= "__" then
      guarded[key] = function(self, ...)
        if not class.is(self, of) then
          fail("'%s' is a method: write %s:%s(...) with ':', not %s.%s(...)", key, name, key, name, key)
        end
        return method(self, ...)
      end
    end
  end
  for key, method in pairs(guarded) do of[key] = method end
end

-- Returns the names of all members of `object`, whose class is `of`, sorted.
local function members(of, object, is_optional)
  local names = {}
  for _, group in ipairs {of, object, is_optional} do
    for key in pairs(group) do
      if type(key) == "string" and key:sub(1, 2) ~= "__" then names[#names + 1] = key end
    end
  end
  table.sort(names)
  return names
end

return function(of, name, optional)
  guard_calls(of, name)
  if not optional then return end
  local is_optional = {}
  for _, key in ipairs(optional) do is_optional[key] = true end
  of.__index = function(object, key)
    local member = of[key]
    if member ~= nil or is_optional[key] then return member end
    fail("%s has no member '%s'%s", check.type_name(object), tostring(key),
         core.suggest(tostring(key), members(of, object, is_optional)))
  end
end
