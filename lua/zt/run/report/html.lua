--- Makes the parts of an HTML page as text.

local html = {}

local ESCAPES = {["&"] = "&amp;", ["<"] = "&lt;", [">"] = "&gt;", ['"'] = "&quot;", ["'"] = "&#39;"}

--- Returns a value as text that HTML and SVG show as it is.
function html.escape(value) return (tostring(value):gsub("[&<>\"']", ESCAPES)) end

--- Returns the format with its arguments, which are escaped.
function html.format(format, ...)
  local arguments = {...}
  for place = 1, select("#", ...) do arguments[place] = html.escape(arguments[place]) end
  return format:format(unpack(arguments))
end

local function cell_of(cell, tag, attributes)
  return ("<%s%s>%s</%s>"):format(tag, attributes, type(cell) == "table" and cell.html or html.escape(cell), tag)
end

--- Returns a table. A cell is a value, or {html = ...} with text that is not escaped. `head` is the row above the others, or nil.
--- The first cell of a row is its head.
function html.table(rows, head, class)
  local parts = {('<div class="scroll"><table class="%s">'):format(class or "")}
  if head then
    local cells = {}
    for column, cell in ipairs(head) do cells[column] = cell_of(cell, "th", ' scope="col"') end
    parts[#parts + 1] = "<thead><tr>" .. table.concat(cells) .. "</tr></thead>"
  end
  parts[#parts + 1] = "<tbody>"
  for _, row in ipairs(rows) do
    local cells = {}
    for column, cell in ipairs(row) do
      cells[column] = column == 1 and cell_of(cell, "th", ' scope="row"') or cell_of(cell, "td", "")
    end
    parts[#parts + 1] = "<tr>" .. table.concat(cells) .. "</tr>"
  end
  parts[#parts + 1] = "</tbody></table></div>"
  return table.concat(parts, "\n")
end

--- Returns a part that opens when its title is clicked. `name` is its id, by which the page remembers that it is open.
function html.details(name, title, content)
  return html.format('<details id="%s"><summary>%s</summary>', name, title) .. content .. "</details>"
end

return html
