--- The option `weights` of infer.engine for the keys of quantisation: dtype "int8", quant.* and weight_quantization.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local weights = {}

local GROUP_WISE = {
  {"num_bits", "integer", "bits of a code: 4 or 8", required = true},
  {"group_size", "integer", "columns that share a scale: 32, 64 or 128", default = 64},
  {"group_dim", "integer", "the dimension of a matrix along which groups lie: 1, its columns", default = 1},
  {"symmetric", "boolean", "with 4 bits: codes have no offset", default = false},
}

-- Returns the format for {num_bits, group_size, group_dim, symmetric}, DeepSpeed's options of one quantizer.
local function group_wise(name, value)
  local o = check.options(name, GROUP_WISE, value)
  if o.num_bits ~= 4 and o.num_bits ~= 8 then fail("%s.num_bits must be 4 or 8, got %d", name, o.num_bits) end
  if o.group_size ~= 32 and o.group_size ~= 64 and o.group_size ~= 128 then
    fail("%s.group_size must be 32, 64 or 128, got %d: these are the groups of packed matrices", name, o.group_size)
  end
  if o.group_dim ~= 1 and o.group_dim ~= -1 then
    fail("%s.group_dim = %d: groups lie along the columns of a matrix, over which a GEMM adds: give 1", name, o.group_dim)
  end
  if o.num_bits == 8 then return {format = "int8", group = o.group_size} end
  return {format = "int4", group = o.group_size, symmetric = o.symmetric or nil}
end

local function with_escapes(text) return (text:gsub("[%^%$%(%)%%%.%[%]%*%+%-%?{}|\\]", "\\%0")) end

-- Returns the format for a table from parts of names to options of quantizers, and those parts. Matrices without any of the parts
-- in their names stay plain.
local function by_name(name, value)
  local format, first
  local parts = check.sorted_keys(value)
  for _, part in ipairs(parts) do
    if part == "" then fail("%s: a key is a part of names of parameters, and '' is in all: give \"mlp\" for example", name) end
    local own = group_wise(name .. "." .. part, value[part])
    format, first = format or own, first or part
    for _, option in ipairs {"format", "group", "symmetric"} do
      if own[option] ~= format[option] then
        fail("%s: '%s' and '%s' have other options, and all packed matrices of a model have one format: give them the same, or "
          .. "leave one out", name, first, part)
      end
    end
  end
  local patterns = {}
  for place, part in ipairs(parts) do patterns[place] = with_escapes(part) end
  format.keep = {"^(?!.*(?:" .. table.concat(patterns, "|") .. "))"}
  return format, parts
end

-- Returns the format for num_bits and q_type.
local function simple(given)
  local bits, kind = given["quant.weight.num_bits"] or 8, given["quant.weight.q_type"]
  if bits == 8 and kind == "asymmetric" then
    fail "quant.weight.q_type = 'asymmetric' needs num_bits 4: codes of 8 bits are symmetric here; give 'symmetric'"
  end
  if bits == 8 then return {format = "int8"} end
  return {format = "int4", symmetric = kind ~= "asymmetric" or nil}
end

-- Returns the format and the parts of names that matrices must have, or nil.
local function format_of(given)
  local all, parts = given["quant.weight.quantized_initialization"], given["quant.weight.post_init_quant"]
  if all and next(all) == nil then all = nil end
  if parts and next(parts) == nil then parts = nil end
  if not all and not parts then return simple(given) end
  if all and parts then
    fail "quantized_initialization packs all matrices and post_init_quant some: a matrix has one format, give one of the two"
  end
  for _, key in ipairs {"num_bits", "q_type"} do
    if given["quant.weight." .. key] ~= nil then
      fail("quant.weight.%s is beside %s, which has options of its own: leave the first out", key,
           all and "quantized_initialization" or "post_init_quant")
    end
  end
  if all then return group_wise("quant.weight.quantized_initialization", all) end
  return by_name("quant.weight.post_init_quant", parts)
end

local function is_disabled(block) return type(block) == "table" and block.enabled == false end

-- Returns the key by which the configuration turns quantisation off, or nil.
local function off_key(config)
  local quant = config.quant
  if is_disabled(quant) then return "quant.enabled" end
  if type(quant) == "table" and is_disabled(quant.weight) then return "quant.weight.enabled" end
  if is_disabled(config.weight_quantization) then return "weight_quantization.enabled" end
end

local function has_any(given, path)
  for key in pairs(given) do
    if key:sub(1, #path) == path then return true end
  end
  return false
end

--- Returns the option `weights`, or nil for plain matrices. Also returns the parts of names that were given, or nil. `config` is
-- the whole configuration, which says what is turned off; `is_int8` whether the dtype is int8.
function weights.of(given, config, is_int8)
  local off = off_key(config)
  local has_activations = has_any(given, "quant.activation.") and given["quant.activation.enabled"] ~= false
  local keeps_qkv = given["quant.qkv.enabled"] == false
  local is_wanted = is_int8 or given["quant.enabled"] == true or has_any(given, "quant.weight.")
  if off and is_int8 then fail("dtype = 'int8' packs the matrices, and %s = false says otherwise: give another dtype", off) end
  if off and has_any(given, "quant.weight.") then
    fail("%s = false, and quant.weight or weight_quantization says how to pack matrices: leave one of them out", off)
  end
  if off or not is_wanted then
    if has_activations or keeps_qkv then
      fail("quant.%s has an effect on packed matrices only, and nothing packs them: give dtype = 'int8', or leave it out",
           has_activations and "activation" or "qkv")
    end
    return nil
  end
  local format, parts = format_of(given)
  if has_activations then format.activations = "int8" end
  if keeps_qkv then
    format.keep = format.keep or {}
    table.insert(format.keep, "\\.attention\\.qkv\\.")
  end
  return format, parts
end

--- Fails unless each of `parts` is in the name of a packed matrix of the model.
function weights.check_parts(model, parts)
  local packed, names = {}, {}
  for _, parameter in ipairs(model:parameters()) do
    if parameter.format ~= "plain" then packed[#packed + 1] = parameter.name end
    names[#names + 1] = parameter.name
  end
  for _, part in ipairs(parts) do
    local is_found = false
    for _, name in ipairs(packed) do is_found = is_found or name:find(part, 1, true) ~= nil end
    if not is_found then
      fail("post_init_quant: no packed matrix has a name that contains '%s'%s; `trainer:parameters()` lists the names, such as "
        .. "'%s'", part, core.suggest(part, names), packed[1] or names[#names])
    end
  end
end

return weights
