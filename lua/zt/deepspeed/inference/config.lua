--- Reads the configuration of deepspeed.init_inference, or of FastGen, and returns the options of the engine that it means.

local check = require "zt.check"
local ds = require "zt.deepspeed.config"
local elsewhere = require "zt.deepspeed.inference.elsewhere"
local fail = require "zt.fail"
local judge = require "zt.deepspeed.values.judge"
local keys = require "zt.deepspeed.inference.keys"
local new_mistakes = require("zt.deepspeed.values.mistakes").new
local ragged_keys = require "zt.deepspeed.inference.ragged_keys"
local result = require "zt.deepspeed.inference.result"

local config = {}

local RAGGED = "inference_v2"
local OF_RAGGED = {"state_manager", "manager", "quantization"} -- keys that only a configuration of FastGen has
local DEPTH = 6 -- of tables within tables; the schemas have fewer levels

local function is_plain_table(value) return type(value) == "table" and getmetatable(value) == nil end -- null has a metatable

-- Returns a copy without the values "auto", which DeepSpeed takes as absent.
local function without_auto(value, depth)
  if not is_plain_table(value) or depth == 0 then return value end
  local out = {}
  for key, each in pairs(value) do
    if each ~= "auto" then out[key] = without_auto(each, depth - 1) end
  end
  return out
end

local function is_same(a, b, depth)
  if a == b then return true end
  if not (is_plain_table(a) and is_plain_table(b)) or depth == 0 then return false end
  for key, value in pairs(a) do
    if not is_same(value, b[key], depth - 1) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

-- Returns the configuration with the keys that are given as options. As in DeepSpeed, a key with two values is an error.
local function joined(given, options)
  local out, others = without_auto(given, DEPTH), without_auto(options, DEPTH)
  for _, key in ipairs(check.sorted_keys(others)) do
    local value = others[key]
    if out[key] ~= nil and not is_same(out[key], value, DEPTH) then
      fail("zt.init_inference: '%s' has one value in the configuration and another as an option: give it once", key)
    end
    out[key] = value
  end
  return out
end

-- Returns the configuration of FastGen if `all` is one, else nil.
local function ragged_of(all)
  local inner = all[RAGGED]
  if inner == nil then
    for _, key in ipairs(OF_RAGGED) do
      if all[key] ~= nil then return all end
    end
    return nil
  end
  if type(inner) ~= "table" then fail("zt.init_inference: %s must be a table, the configuration of FastGen", RAGGED) end
  for _, key in ipairs(check.sorted_keys(all)) do
    if key ~= RAGGED then
      fail("zt.init_inference: %s is a whole configuration, and '%s' stands beside it: put the key into the table, or leave one "
        .. "of them out", RAGGED, key)
    end
  end
  return without_auto(inner, DEPTH)
end

-- Returns the configuration without the keys that belong elsewhere, each of which is a mistake. `schema` is the configuration's.
local function without_strangers(given, schema, mistakes)
  local own = {}
  for key, value in pairs(given) do own[key] = value end
  local schemas = schema == keys and {keys, ragged_keys} or {schema}
  for _, key in ipairs(check.sorted_keys(given)) do
    local where = not schema.blocks[""].by_name[key] and elsewhere.text(key, schemas)
    if where then
      own[key] = nil
      mistakes:try("", fail, "the configuration: unknown key '%s': %s", key, where)
    end
  end
  return own
end

--- Reads `source`, a file's name, JSON text, a table or nil, with the keys `options` of deepspeed.init_inference beside it.
-- Returns the fields
--
--   tensor?, experts?     ranks along the axes; absent: not given
--   folder?               of the parameters
--   dtype?, weights?, max_context?, token_budget?, max_sequences?    options of infer.engine
--   least_context?        tokens that max_context must reach
--   expert_counts?        numbers of experts that the model's layers must have
--   matched?              {"mlp", ...}: a packed matrix must have a name that contains each of these
--   zero?                 {overlap?, max_live?, max_reuse_distance?, persist_below?, persist_total?, prefetch_elements?,
--                         offload? = {parameters = "host" | "nvme", folder?, elements?}}: parameters are sharded
--   notes                 {{key, fate, reason}, ...}: every key that was given
--   advice                {text, ...}: deprecated keys, and keys without effect
--
-- Fails for unknown keys (the message suggests the nearest one), keys given twice, wrong types, values out of range and refused
-- keys. One error lists all mistakes.
function config.read(source, options)
  local all = joined(source == nil and {} or ds.load(source), options)
  local ragged = ragged_of(all)
  local given_config, schema = ragged or all, ragged and ragged_keys or keys
  if type(given_config.moe) == "boolean" then given_config.moe = {enabled = given_config.moe} end
  local mistakes = new_mistakes()
  local own = without_strangers(given_config, schema, mistakes)
  local given, notes = judge.run(schema.blocks, own, {}, mistakes)
  mistakes:raise()
  local out = (ragged and result.of_ragged or result.of)(given, given_config)
  out.notes = notes
  return out
end

return config
