--- An SVG picture in the making.

local core = require "zt.core"

local Canvas = {}
Canvas.__index = Canvas

local ESCAPES = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}

--- Adds an element as text.
function Canvas:add(format, ...) self[#self + 1] = format:format(...) end

-- Returns a label as XML text, which has no control characters.
local function xml(label)
  local text = core.json.decode(core.json.encode(tostring(label))) -- with U+FFFD in place of what is no UTF-8
  return (text:gsub('[&<>"]', ESCAPES):gsub("%c", " "))
end

--- Adds a label. `anchor` is "start", "middle" or "end"; `more` are further attributes.
function Canvas:text(x, y, anchor, label, more)
  self:add('<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>', x, y, anchor, more and " " .. more or "",
           xml(label))
end

--- Ends the picture and returns it.
function Canvas:svg()
  self[#self + 1] = "</svg>\n"
  return table.concat(self, "\n")
end

--- Returns an empty white picture of so many pixels.
local function new(width, height)
  local canvas = setmetatable({}, Canvas)
  canvas:add('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" ' ..
             'font-family="sans-serif" font-size="12" fill="#333">', width, height, width, height)
  canvas:add('<rect width="%d" height="%d" fill="white"/>', width, height)
  return canvas
end

return new
