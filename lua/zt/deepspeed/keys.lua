--- Every key of the JSON of DeepSpeed 0.19.8 with its fate. The keys are data: each file keys/*.lua returns a list of blocks
--
--   {path = "bf16", fate =, text =, is_on = "enabled", same = {"bfloat16"}, rows = {row, ...}, inherit = {row, ...}}
--
-- `is_on` tells whether a block is on: it is the name of a boolean key in the block (absent means off), or a function of the
-- block's table. Without `is_on` a block is on. With `whole` the fate holds for the block itself, whatever keys it has. A row in
-- `inherit` has the fate and text of its block. With `extends` the rows are added to a block of another file. A `*` in a path
-- matches any name. A row is
--
--   {key, fate, type, text, default =, agrees =, off =, auto =, to =, same =, at_least =, above =, between =, one_of =, ...}
--
-- fate      one of
--             mapped     the value goes into the result; text says where and how
--             always     ztoolkit always works so; text says how. Accepted: DeepSpeed's default, and values for which `agrees`
--                        holds (a list, "any", or a function of value and context); `expected` is for the message
--             refused    text says why and what to use instead. Accepted: values that turn the feature off: null, DeepSpeed's
--                        default, false (unless true is the default), values in `off`, and a table with "enabled": false
--             not_yet    like refused, for features that are not built yet; text names the feature
--             noted      not done, without an effect on the run's numbers: the run goes on, with one line that has the text, for
--                        the block if it has a switch, otherwise for the key; text says what to use instead. With
--                        context.strict it is refused
-- type      string, boolean, number, integer, list, table, any; "string|list" is either
-- default   DeepSpeed's default, in rows that are not mapped
-- auto      the inference for "auto" (values/infer.lua); without it "auto" is a mistake
-- to        the field of the result, for values that are copied unchanged; values/result.lua reads the others
-- same      other names of the key
-- lower     letter case does not matter
-- is_dtype  the value is a name of fp32, fp16 or bf16
-- is_valid  a function that returns whether a value is valid; `expected` is for the message
-- no_limit  numbers from here on mean "no limit"; with math.huge, only Infinity does
-- means     {[value] = other}: DeepSpeed takes `value`, of another type, as `other`. hjson.null is as if absent
-- needs_stage  the lowest ZeRO stage at which the key has an effect

local keys = {}

local FILES = {"train", "zero", "offload", "precision", "optimizer", "scheduler", "reports", "checkpoint", "parallel", "data",
               "removed"}

--- The fates, in the order of the summaries.
keys.FATES = {"mapped", "always", "refused", "not_yet", "noted"}

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
    local full = {row[1], spec.fate, row[2], spec.text, is_in_notice = spec.fate == "noted"}
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

-- Makes a block and adds it to its parent as an entry. `path` differs from spec.path if it is another name of the block.
local function new_block(blocks, spec, path, text)
  local block = {path = path, main = spec.path, fate = spec.fate, text = text, is_on = spec.is_on, whole = spec.whole,
                 entries = {}, by_name = {}}
  blocks[path] = block
  if path == "" then return block end
  local parent, key = parent_of(path)
  local entry = {key = key, path = path, main = spec.path, fate = spec.fate, type = "table", text = text, block = block, row = {}}
  table.insert(blocks[parent].entries, entry)
  blocks[parent].by_name[key] = entry
  return block
end

-- Adds the block under another name. Its entries are copies whose texts refer to the first name.
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

-- Makes the blocks of the list `specs`.
local function blocks_of(specs)
  local blocks = {}
  for _, spec in ipairs(specs) do
    local block = spec.extends and blocks[spec.path] or new_block(blocks, spec, spec.path, spec.text)
    add_rows(block, spec)
    for _, path in ipairs(spec.same or {}) do add_alias(blocks, spec, path) end
  end
  return blocks
end

-- Appends the entries of `block` to `out`: first its keys, then its blocks.
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

--- Returns the schema of a list of blocks as above: {blocks =, list =}. `blocks` has them by path; the top level has the path "",
-- and a block has the list `entries` and the table `by_name`. `list` has all entries in one list: {path =, fate =, type =,
-- text =, ...}. Blocks are entries too; a block comes before its keys.
function keys.schema(specs)
  local blocks = blocks_of(specs)
  return {blocks = blocks, list = list_block(blocks[""], {})}
end

local function specs_of_training()
  local specs = {}
  for _, name in ipairs(FILES) do
    for _, spec in ipairs(require("zt.deepspeed.keys." .. name)) do specs[#specs + 1] = spec end
  end
  return specs
end

local TRAINING = keys.schema(specs_of_training())

--- The blocks and the entries of the JSON of zt.initialize, as of keys.schema.
keys.blocks, keys.list = TRAINING.blocks, TRAINING.list

-- Returns whether `entry` shares the Markdown line of `first`: same fate and text, and a key of the same block, or of the block
-- `first`.
local function joins(first, entry)
  if entry == nil or entry.block or entry.fate ~= first.fate or entry.text ~= first.text then return false end
  local parent = parent_of(entry.path)
  return parent == (first.block and first.path or parent_of(first.path))
end

--- Returns `list`, by default keys.list, as a Markdown table. Keys of a block with the same fate and text share a line: the path
-- of the first key, or of the block and "with", then the names of the others.
function keys.markdown(list)
  list = list or keys.list
  local lines = {"| key | fate | what becomes of it |", "|---|---|---|"}
  local index = 1
  while index <= #list do
    local first, names = list[index], {}
    while joins(first, list[index + 1]) do
      index = index + 1
      names[#names + 1] = "`" .. list[index].key .. "`"
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
| noted | %d | is not done: the run goes on, and one line says what to use instead; with `strict = true` it is an error |

There are %d keys; a block is a key too. This file is written by `ztoolkit run scripts/dev/deepspeed_keys.lua`. The keys of
[inference](#the-keys-of-inference) and of [FastGen](#the-keys-of-fastgen) follow. [Another page](deepspeed_chat.md) has the
flags of DeepSpeed-Chat, and the JSON that it writes.

%s
## The keys of inference

These are the keys of `deepspeed.init_inference` (`DeepSpeedInferenceConfig`), which `zt.init_inference` takes in its
configuration or as options. "Mapped" names an option of [infer.engine](../modules/infer/README.md). A value "auto" is as if
absent. The fates of %d keys: %d mapped, %d always so, %d refused.

%s
## The keys of FastGen

These are the keys of `RaggedInferenceEngineConfig`. `zt.init_inference` takes a configuration with `state_manager`, `manager`
or `quantization` as one of FastGen, and so a table `inference_v2` in the configuration, which must then be alone there. The fates
of %d keys: %d mapped, %d always so, %d refused.

%s]]

-- Returns the numbers of keys of a schema of inference, and its table.
local function section(schema)
  local counts = keys.counts(schema.list)
  return counts.all, counts.mapped, counts.always, counts.refused, keys.markdown(schema.list)
end

--- Returns the text of docs/deepspeed_keys.md.
function keys.document()
  local counts = keys.counts()
  local parts = {counts.mapped, counts.always, counts.refused, counts.not_yet, counts.noted, counts.all, keys.markdown()}
  for _, name in ipairs {"keys", "ragged_keys"} do
    for _, part in ipairs {section(require("zt.deepspeed.inference." .. name))} do parts[#parts + 1] = part end
  end
  return DOCUMENT:format(unpack(parts))
end

--- Returns the number of entries of `list`, by default keys.list, per fate, and `all`, their sum.
function keys.counts(list)
  list = list or keys.list
  local counts = {all = #list}
  for _, fate in ipairs(keys.FATES) do counts[fate] = 0 end
  for _, entry in ipairs(list) do counts[entry.fate] = counts[entry.fate] + 1 end
  return counts
end

return keys
