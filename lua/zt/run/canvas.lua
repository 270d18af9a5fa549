--- An SVG picture in the making.

local Canvas = {}
Canvas.__index = Canvas

local ESCAPES = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;"}

--- Adds an element as text.
function Canvas:add(format, ...) self[#self + 1] = format:format(...) end

--- Adds a label. `anchor` is "start", "middle" or "end"; `more` are further attributes.
function Canvas:text(x, y, anchor, label, more)
  self:add('<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>', x, y, anchor, more and " " .. more or "",
           (tostring(label):gsub('[&<>"]', ESCAPES)))
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
