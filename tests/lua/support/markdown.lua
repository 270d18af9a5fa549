-- Reads tables and code blocks of Markdown, for the tests of documents.
local markdown = {}

-- Returns the code blocks marked ```lua as a list of {line = number of its first line, text =}.
function markdown.lua_blocks(text)
  local blocks, open, number = {}, nil, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    if open and line:match "^```" then
      open.text = table.concat(open, "\n")
      blocks[#blocks + 1], open = open, nil
    elseif open then
      open[#open + 1] = line
    elseif line:match "^```lua%s*$" then
      open = {line = number + 1}
    end
  end
  return blocks
end

-- `zt.nn.linear{in, out}` -> "zt.nn.linear()", `Axis.rank` -> "Axis.rank". Returns nil if `code` does not begin with a name of
-- the API.
local function name_of(code)
  if code == "Mesh.*" then return code end
  local name, rest = code:match "^([%a][%w_.:]*)(.*)$"
  if not name or not (name:match "^zt%." or name:match "^%u%w*[.:]%l") then return nil end
  return name .. (rest:match "^[({]" and "()" or "")
end

-- Returns the table rows whose first cell is a name of the API, as a list of {name, line, example}.
function markdown.api_rows(text)
  local rows, number = {}, 0
  for line in (text .. "\n"):gmatch "(.-)\n" do
    number = number + 1
    local code = line:match "^| `([^`]+)` |"
    local name = code and name_of(code)
    if name then rows[#rows + 1] = {name = name, line = number, example = line:match "| `([^`]+)` |$"} end
  end
  return rows
end

-- Returns whether the code has a `...` outside comments and strings: then it cannot run.
function markdown.is_fragment(code)
  return code:gsub('"[^"\n]*"', '""'):gsub("%-%-[^\n]*", ""):find("...", 1, true) ~= nil
end

return markdown
