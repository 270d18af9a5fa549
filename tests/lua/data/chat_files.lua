-- Files for tests of zt.data.tokenize_chat and `ztoolkit tokenize --chat`.
local zt = require "zt"
local fs = require "zt.fs"
local npy = require "data.npy"

local chat_files = {GOLDEN = "tests/golden/chat"}

--- Writes records, a list of tables or of lines, and returns the path.
function chat_files.records(path, list)
  local lines = {}
  for place, record in ipairs(list) do lines[place] = type(record) == "string" and record or zt.json.encode(record) end
  zt.write_file(path, table.concat(lines, "\n") .. "\n")
  return path
end

--- Writes a folder with the tokenizer of a family of tests/golden/chat. `more`: {name = content} of other files, or false without
-- the file. Returns its path.
function chat_files.folder(path, family, more)
  zt.mkdir_p(path)
  for _, name in ipairs{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} do
    local content = more and more[name]
    if content == nil then content = fs.read(("%s/%s/%s"):format(chat_files.GOLDEN, family, name)) end
    if content then zt.write_file(path .. "/" .. name, content) end
  end
  if more and more["generation_config.json"] then
    zt.write_file(path .. "/generation_config.json", more["generation_config.json"])
  end
  return path
end

local function slice(list, first, last)
  local part = {}
  for place = first + 1, last do part[#part + 1] = list[place] end
  return part
end

--- Returns the documents {{tokens =, mask =}, ...} of NAME.npy and its companion, after a check that the files fit together.
function chat_files.read(path)
  local name = path:gsub("%.npy$", "")
  local _, tokens = npy(path)
  local mask_type, mask = npy(name .. ".mask.npy")
  local offsets_type, offsets = npy(name .. ".offsets.npy")
  local companion = zt.json.decode(fs.read(name .. ".json"))
  assert(mask_type == "<u1" and offsets_type == "<i8")
  assert(offsets[1] == 0 and offsets[#offsets] == #tokens and #mask == #tokens and companion.tokens == #tokens)
  local documents = {}
  for place = 1, #offsets - 1 do
    documents[place] = {tokens = slice(tokens, offsets[place], offsets[place + 1]),
                        mask = slice(mask, offsets[place], offsets[place + 1])}
  end
  return documents, companion
end

return chat_files
