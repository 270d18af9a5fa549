--- Every key of the JSON of DeepSpeed 0.19.8, and what becomes of it. The keys themselves are data, in keys/*.lua: a list of
-- blocks
--
--   {path = "bf16", fate =, text =, is_on = "enabled", same = {"bfloat16"}, rows = {row, ...}, inherit = {row, ...}}
--
-- `is_on` says when the block does anything: the name of its boolean key (off when absent), or a function of the block's table;
-- without it a block is on. `whole`: a block that is on meets its fate as a whole, whatever is in it. Below `inherit` a row takes
-- fate and text from its block. `extends`: rows for a block of another file. A `*` in a path stands for any name. A row is
--
--   {key, fate, type, text, default =, agrees =, off =, auto =, to =, same =, at_least =, above =, between =, one_of =, ...}
--
-- fate      one of
--             mapped     goes into the result; text says where and how
--             always     is how we always work; text says how. Accepted: DeepSpeed's default, and what `agrees`
--                        (a list, "any", or a function of value and context, with `expected` for its message)
--             refused    text says why and what to use instead. Accepted: what turns it off, which is null, DeepSpeed's default,
--                        false (unless true is the default), what is in `off`, and a table with "enabled": false
--             not_yet    the same for what is not built yet; text says what
-- type      string, boolean, number, integer, list, table, any; "string|list" is either
-- default   DeepSpeed's, in rows that are not mapped
-- auto      what "auto" stands for (values/infer.lua); without it "auto" is a mistake
-- to        place in the result, for values that go there as they are; others are read by values/result.lua
-- same      other names of the key
-- lower     letter case does not matter
-- is_dtype  a name of fp32, fp16 or bf16
-- is_valid  a function that says whether a value is, with `expected` for its message
-- no_limit  a number that stands for none
-- needs_stage  the lowest ZeRO stage that has something to do with it

local keys = {}

local FILES = {"train", "zero", "offload", "precision", "optimizer", "scheduler", "reports", "checkpoint", "parallel", "data",
               "removed"}

--- The fates, in the order of summaries.
keys.FATES = {"mapped", "always", "refused", "not_yet"}

local function joined(path, key) return path == "" and key or path .. "." .. key end

-- Adds a row under each of its names.
local function add_row(block, row)
  local main = joined(block.path, row[1])
  local entry = {key = row[1], path = main, main = main, fate = row[2], type = row[3], text = row[4], row = row}
  table.insert(block.entries, entry)
  block.by_name[entry.key] = entry
  for _, name in ipairs(row.same or {}) do
    local other = {key = name, path = joined(block.path, name), main = main, fate = entry.fate, type = entry.type,
                   text = ("another name of `%s`"):format(row[1]), row = row}
    table.insert(block.entries, other)
    block.by_name[name] = other
  end
end

local function add_rows(block, spec)
  for _, row in ipairs(spec.rows or {}) do add_row(block, row) end
  for _, row in ipairs(spec.inherit or {}) do
    local full = {row[1], spec.fate, row[2], spec.text}
    for name, value in pairs(row) do
      if type(name) == "string" then full[name] = value end
    end
    add_row(block, full)
  end
end

local function parent_of(path)
  local parent, key = path:match("^(.*)%.([^.]+)$")
  return parent or "", key or path
end

-- A block, known to its parent as an entry of that name. `path` may differ from the spec's for another name of the block.
local function new_block(blocks, spec, path, text)
  local block = {path = path, main = spec.path, text = text, is_on = spec.is_on, whole = spec.whole, entries = {}, by_name = {}}
  blocks[path] = block
  if path == "" then return block end
  local parent, key = parent_of(path)
  local entry = {key = key, path = path, main = spec.path, fate = spec.fate, type = "table", text = text, block = block, row = {}}
  table.insert(blocks[parent].entries, entry)
  blocks[parent].by_name[key] = entry
  return block
end

-- Under another name a block has the same entries, which say so.
local function add_alias(blocks, spec, path)
  local block = new_block(blocks, spec, path, ("another name of `%s`"):format(spec.path))
  for _, entry in ipairs(blocks[spec.path].entries) do
    local copy = {}
    for name, value in pairs(entry) do copy[name] = value end
    copy.path, copy.text = joined(path, entry.key), ("as in `%s`"):format(spec.path)
    table.insert(block.entries, copy)
    block.by_name[entry.key] = copy
  end
end

local function load_blocks()
  local blocks = {}
  for _, name in ipairs(FILES) do
    for _, spec in ipairs(require("zt.deepspeed.keys." .. name)) do
      local block = spec.extends and blocks[spec.path] or new_block(blocks, spec, spec.path, spec.text)
      add_rows(block, spec)
      for _, path in ipairs(spec.same or {}) do add_alias(blocks, spec, path) end
    end
  end
  return blocks
end

--- All blocks by path, the top level under "". A block has `entries` in order and `by_name`.
keys.blocks = load_blocks()

-- Blocks come behind the keys beside them.
local function list_block(block, out)
  for _, entry in ipairs(block.entries) do
    if not entry.block then out[#out + 1] = entry end
  end
  for _, entry in ipairs(block.entries) do
    if entry.block then
      out[#out + 1] = entry
      list_block(entry.block, out)
    end
  end
  return out
end

--- All entries in one list: {path =, fate =, type =, text =, ...}; blocks are entries too, before the keys inside them.
keys.list = list_block(keys.blocks[""], {})

-- Whether `entry` goes into the line of `first`: a key of the same block, or of the block that `first` is.
local function joins(first, entry)
  if entry == nil or entry.block or entry.fate ~= first.fate or entry.text ~= first.text then return false end
  local parent = parent_of(entry.path)
  return parent == (first.block and first.path or parent_of(first.path))
end

--- The same list as a table of Markdown. Keys of a block that share fate and text share a line: the first with its path, or the
-- block itself and "with", then names.
function keys.markdown()
  local lines = {"| key | fate | what becomes of it |", "|---|---|---|"}
  local index = 1
  while index <= #keys.list do
    local first, names = keys.list[index], {}
    while joins(first, keys.list[index + 1]) do
      index = index + 1
      names[#names + 1] = "`" .. keys.list[index].key .. "`"
    end
    local others = #names > 0 and (first.block and " with " or ", ") .. table.concat(names, ", ") or ""
    local text = first.text:gsub("|", "\\|")
    local fate = first.fate:gsub("_", " ")
    lines[#lines + 1] = ("| `%s`%s | %s | %s |"):format(first.path, others, fate, text)
    index = index + 1
  end
  return table.concat(lines, "\n") .. "\n"
end

local DOCUMENT = [[
# The keys of DeepSpeed's configuration

Every key of the JSON of DeepSpeed 0.19.8 is known and has one fate; [lua/zt](../lua/zt/README.md#the-json) reads the file.

| fate | keys | meaning |
|---|---|---|
| mapped | %d | goes into the table that `require "zt.deepspeed.config".read` returns, or into the engine |
| always | %d | is how ztoolkit always works; a value that says otherwise is an error |
| refused | %d | is an error that says what to use instead, unless the value turns the feature off |
| not yet | %d | is not built yet: an error, unless the value turns the feature off |

There are %d keys; a block is a key too. This file is written by `ztoolkit run scripts/dev/deepspeed_keys.lua`.

%s]]

--- The whole of docs/deepspeed_keys.md.
function keys.document()
  local counts = keys.counts()
  return DOCUMENT:format(counts.mapped, counts.always, counts.refused, counts.not_yet, counts.all, keys.markdown())
end

--- How many entries have each fate, by its name, and `all`.
function keys.counts()
  local counts = {all = #keys.list}
  for _, fate in ipairs(keys.FATES) do counts[fate] = 0 end
  for _, entry in ipairs(keys.list) do counts[entry.fate] = counts[entry.fate] + 1 end
  return counts
end

return keys
