--- zt.class: classes with single inheritance.
--
--   local Point = zt.class("Point")
--   function Point:init(x, y) self.x, self.y = x, y end
--   local p = Point(1, 2)
--
--   local Named = zt.class("Named", Point)
--   function Named:init(name, ...) Point.init(self, ...); self.name = name end
--   assert(zt.class.is(Named("a", 1, 2), Point))

local check = require "zt.check"
local fail = require "zt.fail"

local class = {}

local function construct(type, ...)
  local object = setmetatable({}, type)
  if type.init then type.init(object, ...) end
  return object
end

--- Returns a new class. Its methods, the constructor `init` and the metamethods ("__tostring", "__eq") are fields of the result.
-- The class inherits those of `base`.
function class.new(name, base)
  check.argument("zt.class", "the name", "string", name)
  if base ~= nil and not (type(base) == "table" and type(rawget(base, "__name")) == "string") then
    fail("zt.class: the base must be a class that zt.class has made, got %s", check.type_name(base))
  end
  local type = {}
  for key, value in pairs(base or {}) do
    if key:sub(1, 2) == "__" then type[key] = value end  -- copied, because Lua ignores __index when it looks up a metamethod
  end
  type.__index, type.__name = type, name
  type.base = base
  if type.__tostring == nil then
    type.__tostring = function(object) return getmetatable(object).__name end
  end
  return setmetatable(type, {__call = construct, __index = base, __tostring = function() return "class " .. name end})
end

--- Returns whether `object` is an instance of `type` or of a class derived from it.
function class.is(object, type)
  local found = getmetatable(object)
  while found and found ~= type do found = rawget(found, "base") end
  return found == type and type ~= nil
end

return setmetatable(class, {__call = function(_, name, base) return class.new(name, base) end})
