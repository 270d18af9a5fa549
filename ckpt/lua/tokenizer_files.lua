--- The files of a model's tokenizer, {name = content}, that a checkpoint keeps in the record of its script, for `ckpt export` and
-- to make texts with the run's model.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local fs = require "zt.fs"

local tokenizer_files = {}

--- The names of all such files.
tokenizer_files.NAMES = {"tokenizer.model", "tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt",
               "special_tokens_map.json", "added_tokens.json", "chat_template.jinja"}

-- A record's strings are printed as JSON, which has no bytes: a binary file is kept as hexadecimal digits.
local function kept(content)
  return {hex = (content:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))}
end

local function content_of(file)
  if type(file) ~= "table" then return file end
  return (file.hex:gsub("%x%x", function(digits) return string.char(tonumber(digits, 16)) end))
end

local of_streams = setmetatable({}, {__mode = "k"}) -- made once, not for every save

--- Returns the files of the tokenizer of a run's data; nil if the data have none, or one without a file.
function tokenizer_files.of_data(data)
  if data == nil then return nil end
  if of_streams[data] == nil then
    local has_tokenizer, tokenizer = pcall(function() return data.tokenizer end) -- data may be any object
    local has_model, model = pcall(function() return tokenizer:model() end)
    if not has_tokenizer or not has_model or model == "" then
      of_streams[data] = false
    elseif tokenizer.kind == "tokenizer.json" then
      of_streams[data] = {["tokenizer.json"] = model}
    else
      of_streams[data] = {["tokenizer.model"] = kept(model)}
    end
  end
  return of_streams[data] or nil
end

--- Returns the contents {name = bytes} of the tokenizer's files in the folder of a model of Hugging Face's; nil without any.
function tokenizer_files.contents(folder)
  local files
  for _, name in ipairs(tokenizer_files.NAMES) do
    local path = folder .. "/" .. name
    if core.exists(path) then
      files = files or {}
      files[name] = fs.read(path)
    end
  end
  return files
end

--- Returns the same of a record; nil for nil.
function tokenizer_files.contents_of(kept_files)
  local files
  for name, file in pairs(kept_files or {}) do
    files = files or {}
    files[name] = content_of(file)
  end
  return files
end

-- Returns the contents as a record keeps them.
local function kept_of(contents)
  local files
  for name, content in pairs(contents or {}) do
    files = files or {}
    files[name] = name:find "%.model$" and kept(content) or content
  end
  return files
end

--- Returns the tokenizer's files in the folder of a model of Hugging Face's, for a record; nil without any.
function tokenizer_files.of_folder(folder) return kept_of(tokenizer_files.contents(folder)) end

--- Returns what a record keeps of the tokenizer of a model: {tokenizer = files, token_ids =, stop_tokens =}. source: what
-- ckpt.pretrained returns, or a folder with a tokenizer (zt.data.chat_folder). call: begins the message of an error.
function tokenizer_files.record_of(source, call)
  if type(source) == "string" then
    local opened = require("zt.data.chat_folder").open(source)
    return {tokenizer = kept_of(opened.files), token_ids = opened.token_ids, stop_tokens = opened.stop_tokens}
  end
  if check.type_name(source) ~= "a Pretrained" then
    fail("%s must be what ckpt.pretrained returns, or a folder with a tokenizer, got %s", call, check.type_name(source))
  end
  local opened = source.opened
  local ids = opened.record and opened.record.token_ids
  return {tokenizer = kept_of(opened.files), token_ids = ids, stop_tokens = #opened.stop_tokens > 0 and opened.stop_tokens or nil}
end

--- Writes the files into a folder. Returns their paths, sorted.
function tokenizer_files.write(files, folder)
  local paths = {}
  for name, file in pairs(files) do
    local path = folder .. "/" .. name
    core.write_file(path, content_of(file))
    paths[#paths + 1] = path
  end
  table.sort(paths)
  return paths
end

return tokenizer_files
