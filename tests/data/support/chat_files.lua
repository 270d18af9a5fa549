-- Writes the files that zt.data.conversations and the like read, as `ztoolkit tokenize --chat` does.
local bit = require "bit"
local zt = require "zt"

local chat_files = {}

local BYTES = {["<u1"] = 1, ["<u2"] = 2, ["<i8"] = 8}

local function write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
end

--- Writes whole numbers from 0 to 2^31 - 1 as a .npy file.
function chat_files.write_npy(path, dtype, numbers)
  local header = ("{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }"):format(dtype, #numbers)
  local parts = {"\147NUMPY\1\0v\0", header, (" "):rep(117 - #header), "\n"}
  for _, number in ipairs(numbers) do
    for byte = 0, BYTES[dtype] - 1 do
      parts[#parts + 1] = string.char(byte < 4 and bit.band(bit.rshift(number, 8 * byte), 255) or 0)
    end
  end
  write(path, table.concat(parts))
end

--- Writes NAME.npy and the files beside it; returns the path. `documents`: a list of {tokens = {...}, mask = {...}}. `items`: a
-- list of tables, one per record, or nil.
function chat_files.write(folder, name, kind, documents, items)
  local tokens, mask, offsets = {}, {}, {0}
  for _, document in ipairs(documents) do
    for index, token in ipairs(document.tokens) do
      tokens[#tokens + 1], mask[#mask + 1] = token, document.mask[index]
    end
    offsets[#offsets + 1] = #tokens
  end
  local stem = folder .. "/" .. name
  chat_files.write_npy(stem .. ".npy", "<u2", tokens)
  chat_files.write_npy(stem .. ".mask.npy", "<u1", mask)
  chat_files.write_npy(stem .. ".offsets.npy", "<i8", offsets)
  write(stem .. ".json", zt.json.encode{
    format = "ztoolkit tokens 1", tokens = #tokens, vocab = 256, tokenizer = {kind = "bytes"}, kind = kind,
    source = {name = name .. ".jsonl", bytes = 1, hash = "00"}, records = kind == "preferences" and #documents / 3 or #documents,
    mask_of = "completion", stop_tokens = {0},
  })
  if items then
    local lines = {}
    for index, item in ipairs(items) do lines[index] = zt.json.encode(item):gsub("\n", " ") .. "\n" end
    write(stem .. ".items.jsonl", table.concat(lines))
  end
  return stem .. ".npy"
end

--- Returns a document of a question and an answer, of which each token counts.
function chat_files.document(question, answer)
  local tokens, mask = {question:byte(1, -1)}, {}
  for index = 1, #tokens do mask[index] = 0 end
  for _, token in ipairs{answer:byte(1, -1)} do
    tokens[#tokens + 1], mask[#mask + 1] = token, 1
  end
  return {tokens = tokens, mask = mask}
end

return chat_files
