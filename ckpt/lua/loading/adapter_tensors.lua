--- Reads the tensors of a LoRA adapter as PEFT saves it, adapter_model.safetensors: matrices A [rank, in] and B [out, rank] of
-- modules, and whole tensors in place of those of the base (modules_to_save).

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local native = require "zt.ckpt"
local text = require "zt.text"

local FILE, PICKLED = "adapter_model.safetensors", "adapter_model.bin"
local PREFIX = "base_model.model."
local FLOATS = {float32 = true, float16 = true, bfloat16 = true, float64 = true}

-- Rows {pattern of a tensor's name, what it belongs to}.
local REFUSED = {
  {"%.lora_embedding_[AB]", "an adapter of an embedding"},
  {"%.lora_magnitude_vector", "an adapter with use_dora"},
  {"%.lora_B%.bias$", "an adapter with lora_bias"},
  {"%.lora_[^.]+", "a kind of LoRA that is not known here"},
  {"%.trainable_tokens_", "an adapter with trainable_token_indices"},
}
local OF_TRAINING = "%.lora_velora_embed"

local Tensors = {}
Tensors.__index = Tensors

local function check_file(folder)
  local path = folder .. "/" .. FILE
  if core.exists(path) then return path end
  if core.exists(folder .. "/" .. PICKLED) then
    fail("'%s' has %s, which is a program of Python, and no %s: save the adapter again by PEFT with safe_serialization=True",
      folder, PICKLED, FILE)
  end
  fail("'%s' has no %s: look for the missing file of the adapter", folder, FILE)
end

-- An error for a tensor that holds no numbers of a weight. PEFT saves such ones under ZeRO-3 and FSDP if parts are not gathered.
local function check_tensor(tensor, is_half, path)
  local numel = 1
  for _, size in ipairs(tensor.shape) do numel = numel * size end
  if not FLOATS[tensor.dtype] then
    fail("%s: '%s' is %s, where floating-point numbers are needed: the file is not that of a LoRA adapter", path, tensor.name,
      tensor.dtype)
  end
  if numel > 0 and (not is_half or #tensor.shape == 2) then return end
  fail("%s: '%s' is %s, %s: training with DeepSpeed's ZeRO-3 or with FSDP saves this if the parts of the ranks are not gathered. "
    .. "Save the adapter again, with the parameters gathered (stage3_gather_16bit_weights_on_model_save)", path, tensor.name,
    text.shape(tensor.shape), numel == 0 and "which holds nothing" or "no matrix")
end

-- Puts a tensor where it belongs, by its name without PREFIX.
local function add(self, name, tensor)
  local module, half = name:match "^(.*)%.lora_([AB])%.weight$"
  if not module and name:find(OF_TRAINING) then return end
  for _, row in ipairs(module and {} or REFUSED) do
    if ("." .. name):find(row[1]) then
      fail("%s: '%s' belongs to %s, which is not read here. Merge the adapter into its base by PEFT (merge_and_unload), and give "
        .. "the folder of the result as the model", self.path, tensor.name, row[2])
    end
  end
  check_tensor(tensor, half ~= nil, self.path)
  if module then
    self.halves[module] = self.halves[module] or {}
    self.halves[module][half] = tensor
    return
  end
  tensor.is_of_base = ("." .. name):find("%.base_layer%.") ~= nil
  name = name:gsub("%.modules_to_save%.", "."):gsub("%.base_layer%.", ".")
  if self.whole[name] then
    fail("%s: '%s' and '%s' are two tensors for one: the file is damaged", self.path, tensor.name, self.whole[name].name)
  end
  self.whole[name] = tensor
end

local function check_pairs(self)
  for _, module in ipairs(check.sorted_keys(self.halves)) do
    local pair = self.halves[module]
    local there = pair.A or pair.B
    if not (pair.A and pair.B) then
      fail("%s: '%s' is there, but '%s%s.lora_%s.weight' is missing: get the file again", self.path, there.name, PREFIX, module,
        pair.A and "B" or "A")
    end
  end
end

--- Opens the file of a folder. Returns {path =, halves = {module = {A = tensor, B = tensor}}, whole = {name = tensor}}, where
-- tensors are {name, shape, dtype}, with the functions below. A whole tensor `is_of_base` if PEFT has saved it beside A and B.
function Tensors.open(folder)
  local path = check_file(folder)
  local self = setmetatable({path = path, files = native.safetensors(path), halves = {}, whole = {}}, Tensors)
  for _, tensor in ipairs(self.files:tensors()) do
    if tensor.name:sub(1, #PREFIX) ~= PREFIX then
      fail("%s: '%s' does not begin with '%s', so PEFT has not saved it as an adapter: give the folder that save_pretrained of a "
        .. "PeftModel has written", path, tensor.name, PREFIX)
    end
    add(self, tensor.name:sub(#PREFIX + 1), tensor)
  end
  check_pairs(self)
  if next(self.halves) == nil and next(self.whole) == nil then
    fail("%s has no tensors, so the adapter changes nothing: get the file again", path)
  end
  return self
end

--- Returns the values of a tensor.
function Tensors:read(tensor) return self.files:read(tensor.name) end

--- An error unless the file has the tensors of the modules that were trained as a whole (modules_to_save). config: of the folder.
-- parts: set of the names of the model's tensors.
function Tensors:check_saved(config, parts)
  for _, module in ipairs(config.saved) do
    local missing = {}
    for name in pairs(parts) do
      local is_of_it = ("." .. name):find("." .. tostring(module) .. ".", 1, true) ~= nil
      if is_of_it and not self.whole[name] then missing[#missing + 1] = name end
    end
    if #missing > 0 then
      table.sort(missing)
      fail("%s: '%s' was trained as a whole (modules_to_save in %s), and these of its tensors are missing: %s. Get the files "
        .. "again", self.path, tostring(module), config.path, text.some(missing))
    end
  end
end

-- Reads a tensor. Returns whether it is not all zero. An error for numbers that are not finite, in `dtype` if it is given.
local function is_nonzero(self, tensor, dtype)
  local has_numbers
  core.scope(function()
    local values = self:read(tensor)
    if dtype and values:isfinite():all():item() and not values:to(dtype):isfinite():all():item() then
      fail("%s: '%s' has numbers that are too large for %s, the parameters' dtype here: load it in a wider precision", self.path,
        tensor.name, dtype)
    end
    if not values:isfinite():all():item() then
      fail("%s: '%s' has numbers that are not finite, so all answers would be useless: the training has diverged, or the file is "
        .. "damaged", self.path, tensor.name)
    end
    has_numbers = values:count_nonzero():item() > 0
  end)
  return has_numbers
end

--- Reads all values once, one tensor at a time. Returns whether a product B A changes anything. An error for numbers that are not
-- finite, in `dtype` if it is given.
function Tensors:check_values(dtype)
  local has_effect = false
  for _, name in ipairs(check.sorted_keys(self.whole)) do is_nonzero(self, self.whole[name], dtype) end
  for _, module in ipairs(check.sorted_keys(self.halves)) do
    local pair = self.halves[module]
    local has_a, has_b = is_nonzero(self, pair.A, dtype), is_nonzero(self, pair.B, dtype)
    has_effect = has_effect or (has_a and has_b)
  end
  return has_effect
end

return Tensors
