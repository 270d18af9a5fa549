--- Shows documents: their text with special tokens, and which part of it counts.

local shown = {}

local COLOURS = {counts = "\27[32m", rest = "\27[2m", off = "\27[0m"}

-- Control characters of a data set must not reach the terminal.
local function printable(text)
  return (text:gsub("[%z\1-\8\11-\31\127]", function(byte) return ("\\x%02x"):format(byte:byte()) end))
end

-- Returns the runs {text =, counts =} of tokens that are alike.
local function runs_of(tokenizer, document)
  local runs, mask = {}, document.mask:tolist()
  for place, piece in ipairs(tokenizer:pieces(document.tokens)) do
    local counts, last = mask[place] == 1, runs[#runs]
    if not last or last.counts ~= counts then
      last = {counts = counts, pieces = {}}
      runs[#runs + 1] = last
    end
    table.insert(last.pieces, piece)
  end
  return runs
end

--- Returns a document as text. With colours, what counts is green and the rest is dim; without, what counts stands within ⟦ ⟧.
function shown.text(tokenizer, document, has_colours)
  local parts = {}
  for _, run in ipairs(runs_of(tokenizer, document)) do
    local text = printable(table.concat(run.pieces))
    if has_colours then text = (run.counts and COLOURS.counts or COLOURS.rest) .. text .. COLOURS.off
    elseif run.counts then text = "⟦" .. text .. "⟧" end
    parts[#parts + 1] = text
  end
  return table.concat(parts)
end

return shown
