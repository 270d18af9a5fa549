--- Guards the methods of a class: a call without the object, as by run.log(step) instead of run:log(step), says that ":" is
-- missing. Call it after the last method is defined. `name` is how scripts call an object.

local class = require "zt.class"
local fail = require "zt.fail"

return function(of, name)
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
