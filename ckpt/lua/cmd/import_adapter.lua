-- ztoolkit ckpt import --adapter: makes a checkpoint of a base with the adapters of PEFT's files.

local Reading = require "zt.ckpt.adapters.read_adapter"
local base_hash = require "zt.ckpt.adapters.base_hash"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local folder = require "zt.ckpt.pretrained.folder"
local lora_options = require "zt.ckpt.adapters.lora_options"
local model_head = require "zt.ckpt.config.model_head"
local source_of = require "zt.ckpt.adapters.source"

-- The dtypes that hold fewer digits than what was trained.
local SHORT = {bfloat16 = true, float16 = true}

-- Opens the base, whose parameters must be plain ones without adapters.
local function base_of(path)
  local opened = folder.open(path)
  if opened.weights then
    fail("the matrices of '%s' are packed, as %s, and a checkpoint has plain numbers only: give the plain model as --base, or "
      .. "load the adapter by ckpt.load_adapter in a script", path, opened.weights.format)
  end
  if opened.options.lora then
    fail("the model of '%s' has adapters already: merge them first (ztoolkit ckpt export --merge), or give its base as --base",
      path)
  end
  if opened.check then opened.check() end
  return opened
end

-- Makes an opened language model one with a value head, which begins as 0.
local function take_value_head(opened)
  local places, read, hidden = {}, opened.read, opened.options.hidden
  local kept = {}
  for place, name in ipairs(opened.names) do
    if name ~= model_head.OF_LM then
      kept[#kept + 1] = name
      places[#kept] = place
    end
  end
  kept[#kept + 1] = model_head.VALUE
  opened.options.head, opened.names = "value", kept
  function opened.read(place, name)
    if name == model_head.VALUE then return core.zeros{1, hidden} end
    return read(places[place], name)
  end
end

-- An error if the value head of a base that has none is not in the adapter's files.
local function check_value_head(o, reading, is_new)
  if not is_new or reading.whole[model_head.VALUE] then return end
  fail("--head value: '%s' is a language model, and the adapter in '%s' has no value head (score.weight, which PEFT saves with "
    .. "task_type SEQ_CLS): leave --head out, or give the base with its value head", o.base, o.from)
end

--- o: the options of the command. Checks all but the values of the base. Returns a function that adds the parameters to an import
-- and returns their number, and the record.
return function(o)
  local opened = base_of(o.base)
  local has_new_head = o.head == "value" and opened.options.head ~= "value"
  if has_new_head then take_value_head(opened) end
  local options = {}
  for key, value in pairs(opened.options) do options[key] = value end
  options.lora = lora_options(o.from, opened.options)
  local source = source_of.of_opened(opened, options, ("'%s' with these adapters"):format(o.base))
  local reading = Reading.open(o.from, source)
  check_value_head(o, reading, has_new_head)
  base_hash.check(o.from, source, reading.whole, o.base, print)
  local record = {model = options, token_ids = opened.record.token_ids, tokenizer = opened.record.tokenizer,
                  stop_tokens = opened.record.stop_tokens, trained = check.sorted_keys(reading.trained)}
  if #record.trained == 0 then record.trained = nil end
  return function(import)
    for place, name in ipairs(opened.names) do
      local values = opened.read(place, name)
      if reading.whole[name] then
        values = reading:set_rows(name, SHORT[values:dtype()] and values:to "float32" or values)
      end
      import:add("model/" .. name, values)
    end
    for _, name in ipairs(reading.names) do import:add("model/" .. name, reading.values[name]()) end
    return #opened.names + #reading.names
  end, record
end
