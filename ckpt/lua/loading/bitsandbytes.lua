--- Reads matrices that bitsandbytes has quantised to nf4, in the safetensors files of a Hugging Face folder. A matrix "w" is a
-- tensor of codes, "w", with tensors "w.absmax", "w.quant_map" and others beside it, and its shape in
-- "w.quant_state.bitsandbytes__nf4".

local core = require "zt.core"
local fail = require "zt.fail"

require "zt.gemm" -- has the kernels of packed matrices

local bitsandbytes = {}

local STATE = ".quant_state.bitsandbytes__"
local BLOCK, NESTED_BLOCK = 64, 256
local PARTS = {"absmax", "quant_map", "nested_absmax", "nested_quant_map"}

--- An error unless a config.json says that matrices are in nf4. config: its path.
function bitsandbytes.check(quantisation, config)
  local function refuse(what, advice)
    fail("%s: the model is quantised by bitsandbytes %s, which is not read here: %s", config, what, advice)
  end
  if not quantisation.load_in_4bit then
    refuse("to 8 bits", "take the model with plain weights, and pack it by ztoolkit quantise --format int8")
  end
  local kind = quantisation.bnb_4bit_quant_type or "fp4"
  if kind ~= "nf4" then refuse("as " .. tostring(kind), "take one in nf4, or with plain weights") end
  local storage = quantisation.bnb_4bit_quant_storage or "uint8"
  if storage ~= "uint8" then
    refuse("and stored as " .. tostring(storage), "save it with bnb_4bit_quant_storage = uint8")
  end
end

-- Returns the description of a matrix. name: of the tensor that holds it, for messages.
local function state_of(files, name)
  local bytes = files:read(name):tolist()
  local is_json, state = pcall(core.json.decode, string.char(unpack(bytes)))
  if not is_json or type(state) ~= "table" or type(state.shape) ~= "table" or #state.shape ~= 2 then
    fail("'%s' does not describe a matrix: the file is damaged", name)
  end
  local is_nested = state.nested_blocksize ~= nil
  if state.quant_type ~= "nf4" or state.blocksize ~= BLOCK or (is_nested and state.nested_blocksize ~= NESTED_BLOCK) then
    fail("'%s' has %s in blocks of %s%s: only nf4 in blocks of %d is read, with nested blocks of %d", name,
      tostring(state.quant_type), tostring(state.blocksize),
      is_nested and (" and %s"):format(tostring(state.nested_blocksize)) or "", BLOCK, NESTED_BLOCK)
  end
  if is_nested and type(state.nested_offset) ~= "number" then
    fail("'%s' has no number 'nested_offset', without which scales are unknown: the file is damaged", name)
  end
  return {rows = state.shape[1], columns = state.shape[2], dtype = state.dtype, is_nested = is_nested,
          offset = state.nested_offset}
end

local Matrices = {}
Matrices.__index = Matrices

--- Returns the matrices in the files (ckpt.safetensors). shapes: {name = shape} of all tensors, in which matrices get the shape
-- that they stand for, and the tensors beside them are left out. is_transposed: the plain ones would be [in, out].
function bitsandbytes.open(files, shapes, is_transposed)
  local matrices = setmetatable({files = files, of = {}, is_transposed = is_transposed}, Matrices)
  for _, tensor in ipairs(files:tensors()) do
    local name, kind = tensor.name:match("^(.*)" .. STATE:gsub("%.", "%%.") .. "(.*)$")
    if name then
      if not shapes[name] then fail("the files have '%s' but not '%s': look for the missing file", tensor.name, name) end
      if kind ~= "nf4" then fail("'%s' is a matrix in %s, and only nf4 is read: take the model in nf4", name, kind) end
      local state = state_of(files, tensor.name)
      matrices.of[name] = state
      shapes[name] = is_transposed and {state.columns, state.rows} or {state.rows, state.columns}
      shapes[tensor.name] = nil
      for _, part in ipairs(PARTS) do shapes[name .. "." .. part] = nil end
    end
  end
  return matrices
end

--- Returns whether a tensor is such a matrix.
function Matrices:has(name) return self.of[name] ~= nil end

-- Calls zt.import_nf4 for parts of a parameter or of a matrix. An error names it.
local function import_nf4(name, call)
  local is_done, bytes = pcall(core.import_nf4, call)
  if not is_done then fail("'%s' cannot be read: %s", name, (tostring(bytes):gsub("^%S+:%d+: ", ""))) end
  return bytes
end

-- Returns a matrix as zt.import_nf4 takes it.
function Matrices:part(name)
  local state = self.of[name]
  local part = {rows = state.rows, nested_offset = state.offset, weight = self.files:read(name):reshape(-1)}
  for index = 1, state.is_nested and #PARTS or 2 do part[PARTS[index]] = self.files:read(name .. "." .. PARTS[index]) end
  return part
end

--- Returns the numbers that a matrix stands for, [in, out] if the plain ones are so. The blocks follow each other over the ends
-- of rows, so a matrix is read as one of a block per row.
function Matrices:values(name)
  local state, part = self.of[name], self:part(name)
  local numel = state.rows * state.columns
  local blocks = math.ceil(numel / BLOCK)
  part.rows = blocks
  local missing = blocks * BLOCK / 2 - part.weight:size(0)
  if missing > 0 then part.weight = core.cat({part.weight, core.zeros({missing}, {dtype = "uint8"})}, 0) end
  local bytes = import_nf4(name, {parts = {part}, columns = BLOCK})
  local values = core.unpack(bytes, {format = "nf4", nested = state.is_nested, rows = blocks, columns = BLOCK})
  values = values:reshape(-1):narrow(0, 0, numel):reshape(state.rows, state.columns)
  return (self.is_transposed and values:t() or values):to(state.dtype)
end

-- Returns whether a parameter's matrices may be packed in 4 bits here, and have whole blocks in each row.
local function may_stay_packed(entry)
  local name = entry.name
  if #entry.shape < 2 or name:find "^head%." or name:find "^embedding%." or name:find "%.router%." then return false end
  return entry.shape[#entry.shape] % BLOCK == 0
end

-- Returns the numbers of rows of a parameter's matrices, for each matrix of a stack by itself.
local function rows_by_matrix(entry)
  local matrices = #entry.shape == 3 and entry.shape[1] or 1
  local rows, lists = entry.shape[#entry.shape - 1], {}
  for index = 1, matrices do lists[index] = {} end
  for _, part in ipairs(entry.parts) do
    local list = lists[math.floor(part.first / rows) + 1]
    list[#list + 1] = part.rows
  end
  return lists
end

--- Returns the format of the parameters of a map (ckpt.names) that are joined from such matrices only: {format = "nf4", nested =,
-- keep = the others, as patterns}; nil if there are none. They are nested if all of them can be joined so. Others,
-- such as heads, are read as numbers. Sets is_packed of each entry of the map.
function Matrices:format(map)
  local keep, is_nested, any = {}, true, false
  for _, entry in ipairs(map) do
    local quantised = 0
    for _, part in ipairs(entry.parts) do quantised = quantised + (self:has(part.name) and 1 or 0) end
    entry.is_packed = quantised == #entry.parts and may_stay_packed(entry)
    any = any or entry.is_packed
    if not entry.is_packed then
      keep[#keep + 1] = "^" .. entry.name:gsub("%.", "\\.") .. "$"
    else
      local columns = entry.shape[#entry.shape]
      for _, rows in ipairs(rows_by_matrix(entry)) do
        is_nested = is_nested and core.can_join_nf4(rows, columns, true)
      end
      for _, part in ipairs(entry.parts) do is_nested = is_nested and self.of[part.name].is_nested end
    end
  end
  return any and {format = "nf4", nested = is_nested, keep = keep} or nil
end

--- Returns the bytes of a parameter with is_packed, as zt.pack would make them: nested or not.
function Matrices:bytes(entry, is_nested)
  local parts = {}
  for index, part in ipairs(entry.parts) do parts[index] = self:part(part.name) end
  return import_nf4(entry.name, {parts = parts, columns = entry.shape[#entry.shape], nested = is_nested,
                                 matrices = #entry.shape == 3 and entry.shape[1] or nil})
end

-- The modules that transformers leaves plain if a configuration names none.
local SKIPPED = {"lm_head"}

-- From this version on, transformers holds experts in stacks of matrices, which it does not quantise.
local STACKED_EXPERTS = 5

--- Returns matrices as `open` does, of a model whose files are not here: those that transformers would quantise. config: the
-- content of config.json. map: ckpt.names.
function bitsandbytes.described(config, map)
  local quantisation = config.quantization_config
  local skipped, matrices = quantisation.llm_int8_skip_modules, setmetatable({of = {}}, Matrices)
  local version = tonumber(tostring(config.transformers_version):match "^%d+") or STACKED_EXPERTS
  if type(skipped) ~= "table" then skipped = SKIPPED end
  for _, entry in ipairs(map) do
    local is_linear = entry.name:find "^blocks%..*%.weight$" and not entry.name:find "norm" or entry.name == "head.weight"
    for _, part in ipairs(entry.parts) do
      local is_quantised = is_linear and not (version >= STACKED_EXPERTS and part.name:find "%.experts%.")
      for _, word in ipairs(skipped) do
        is_quantised = is_quantised and not ("." .. part.name .. "."):find("." .. word .. ".", 1, true)
      end
      if is_quantised then
        matrices.of[part.name] = {rows = part.rows, is_nested = quantisation.bnb_4bit_use_double_quant ~= false}
      end
    end
  end
  return matrices
end

return bitsandbytes
