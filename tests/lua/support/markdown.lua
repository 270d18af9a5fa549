-- Reads code blocks of Markdown, for the tests of documents.
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

-- Returns whether the code has a `...` outside comments and strings: then it cannot run.
function markdown.is_fragment(code)
  return code:gsub('"[^"\n]*"', '""'):gsub("%-%-[^\n]*", ""):find("...", 1, true) ~= nil
end

return markdown
