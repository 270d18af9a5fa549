--- Reads PEFT's files into the adapters of a model: checks that they fit, and gives the values of our parameters.

local Config = require "zt.ckpt.loading.adapter_config"
local Modules = require "zt.ckpt.adapters.modules"
local Tensors = require "zt.ckpt.loading.adapter_tensors"
local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"
local links = require "zt.ckpt.adapters.links"
local log = require "zt.log"
local lora = require "zt.ckpt.adapters.lora"
local text = require "zt.text"

local ADVICE = "make the model with lora = ckpt.lora_options(folder, options), which are those of this adapter"

local Reading = {}
Reading.__index = Reading

local function are_equal(one, other) return core.op "equal"(one, other) end

-- An error unless the adapters of the file and of the model are of the same modules, with the lists of both.
local function check_modules(self, list)
  local there, missing, extra = {}, {}, {}
  for _, link in ipairs(list) do
    for _, module in ipairs(link.modules) do
      there[module] = true
      if not self.tensors.halves[module] then missing[#missing + 1] = module end
    end
  end
  for _, module in ipairs(check.sorted_keys(self.tensors.halves)) do
    if not there[module] then extra[#extra + 1] = module end
  end
  local lines = {}
  for _, group in ipairs{{"The file has, and the model lacks", extra}, {"The model has, and the file lacks", missing}} do
    if #group[2] > 0 then lines[#lines + 1] = ("%s, %d: %s."):format(group[1], #group[2], text.some(group[2])) end
  end
  if #lines == 0 then return end
  fail("%s and %s have adapters of other modules. %s %s", self.tensors.path, self.place, table.concat(lines, " "),
    (ADVICE:gsub("^%l", string.upper)))
end

-- An error unless a module has the rank and the scale in the file that the model has.
local function check_numbers(self, module, rank, scale)
  local config = self.config
  local file_rank, file_scale = config:rank_of(module), config:scale_of(module)
  if file_rank ~= rank then
    fail("%s: '%s' has rank %d (r, rank_pattern), and %d in %s: %s", config.path, module, file_rank, rank, self.place, ADVICE)
  end
  if math.abs(file_scale - scale) > 1e-9 * math.abs(scale) then
    fail("%s: '%s' has the scale %.9g (lora_alpha, alpha_pattern, use_rslora), and %.9g in %s, so B A would count for more or "
      .. "less than in training: %s", config.path, module, file_scale, scale, self.place, ADVICE)
  end
  self.modules:check_pair(self.tensors, module, rank)
end

-- Adds an adapter whose rows are those of one module or of several, which must have the same A.
local function add_joined(self, link)
  local adapter, pairs_of = link.adapters[1], {}
  for place, module in ipairs(link.modules) do
    check_numbers(self, module, adapter.rank, adapter.scale)
    pairs_of[place] = self.tensors.halves[module]
  end
  local function read(pair, half) return self.tensors:read(pair[half]) end
  for place = 2, #pairs_of do
    if not are_equal(read(pairs_of[1], "A"), read(pairs_of[place], "A")) then
      fail("%s: '%s' and '%s' have different matrices A, and %s has one adapter for all rows ('%s'): %s", self.tensors.path,
        link.modules[1], link.modules[place], self.place, adapter.target, ADVICE)
    end
  end
  self.values[adapter.name .. ".a"] = function() return read(pairs_of[1], "A") end
  self.values[adapter.name .. ".b"] = function()
    local all = {}
    for place, pair in ipairs(pairs_of) do all[place] = read(pair, "B") end
    return core.cat(all, 0)
  end
end

-- Adds adapters that are parts of a module's adapter. An error if it has numbers in B between these parts.
local function add_stacked(self, link)
  local module, part = link.modules[1], self.modules.linear[link.modules[1]]
  local common = links.stacked(link, self.is_by_root)
  check_numbers(self, module, common.rank, common.scale)
  local pair, column = self.tensors.halves[module], 0
  local rest = self.tensors:read(pair.B):clone()
  for _, adapter in ipairs(link.adapters) do
    local from = column
    local function block(of) return of:narrow(0, adapter.first - part.first, adapter.rows):narrow(1, from, adapter.rank) end
    local ratio = 1
    if adapter.scale ~= common.scale then ratio = adapter.scale ~= 0 and common.scale / adapter.scale or 0 end
    self.values[adapter.name .. ".a"] = function() return self.tensors:read(pair.A):narrow(0, from, adapter.rank) end
    self.values[adapter.name .. ".b"] = function() return block(self.tensors:read(pair.B)) * ratio end
    block(rest):zero_()
    column = column + adapter.rank
  end
  if rest:count_nonzero():item() == 0 then return end
  fail("%s: '%s' has one adapter for all its rows, and %s has adapters of parts of them ('%s'), which cannot be told apart: %s",
    self.tensors.path, module, self.place, link.adapters[1].target, ADVICE)
end

-- Adds the whole tensors, by our parameters: {parameter = {{part =, tensor =}, ...}}, and which of them were trained.
local function add_whole(self, formats)
  self.modules:check_tied(self.tensors)
  for _, name in ipairs(check.sorted_keys(self.tensors.whole)) do
    local tensor, part = self.tensors.whole[name], self.modules.parts[name]
    local parameter = part.parameter
    Modules.check_shape(self.tensors, tensor, part.shape, "as in the model")
    if formats[parameter] then
      fail("%s replaces '%s', which is packed as %s in %s, so it would be rounded: leave it plain by the option keep of "
        .. "model:pack", self.tensors.path, parameter, formats[parameter], self.place)
    end
    self.whole[parameter] = self.whole[parameter] or {}
    table.insert(self.whole[parameter], {part = part, tensor = tensor})
    if not tensor.is_of_base then self.trained[parameter] = true end
  end
end

-- PEFT saves the head of a base beside an adapter of it. In a tied model this is the embedding, which the model has.
local function leave_out_base_of_head(tensors, modules)
  local head = modules.embedding and tensors.whole[Modules.HEAD]
  if not head or not head.is_of_base or tensors.whole[modules.embedding] then return end
  tensors.whole[Modules.HEAD] = nil
  log.info("%s: '%s' is left out: it is the head of the base, and the model's is tied to its embedding", tensors.path, head.name)
end

--- Opens a folder for a model (source.lua), and checks all of it. The result has
--   names           list of our adapters' parameters; `values[name]()` returns one
--   whole           {parameter = parts that replace its rows}, as set_rows takes them
--   trained         set of the parameters among these that were trained
function Reading.open(folder, source)
  if not core.exists(folder) then fail("there is no folder '%s': give the folder of a LoRA adapter", folder) end
  local config, tensors = Config.read(folder), Tensors.open(folder)
  local modules = Modules.of(source.options, source.place)
  local self = setmetatable({config = config, tensors = tensors, modules = modules, place = source.place, values = {}, whole = {},
                             trained = {}, is_by_root = lora.is_by_root(source.options)}, Reading)
  leave_out_base_of_head(tensors, modules)
  modules:check_names(tensors)
  local list = links.of(modules, lora.list(source.options, source.tensors))
  check_modules(self, list)
  for _, link in ipairs(list) do
    if links.is_stacked(link, modules) then add_stacked(self, link) else add_joined(self, link) end
  end
  add_whole(self, source.formats)
  tensors:check_saved(config, modules.parts)
  if not tensors:check_values(source.dtype or "float32") then
    log.warn("%s: each product B A is zero, so the matrices change nothing: was it saved before the training?", tensors.path)
  end
  self.names = check.sorted_keys(self.values)
  return self
end

--- Returns the values of a parameter after its rows are replaced by whole tensors. values: those of the base, which it changes.
function Reading:set_rows(parameter, values)
  local is_matrix = values:dim() > 1
  local rows = is_matrix and values:flatten(0, -2) or values
  for _, change in ipairs(self.whole[parameter]) do
    local part, new = change.part, self.tensors:read(change.tensor)
    if part.transposed then new = new:t() end
    local place = rows:narrow(0, part.first, part.rows)
    place:copy_(new:reshape(place:size()))
  end
  return values
end

return Reading
