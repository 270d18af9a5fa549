--- zt.transfer(from, to, options): moves the values of a trainer to another one, from any layout to any other.

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local move = core.transfer

local OPTIONS = {
  {"only", "list", "regular expressions: only the tensors of `to` whose name contains a match of one move; default: all"},
  {"adapters", "string", "keep: both trainers have the same adapters, or none; merge: `to` has none, and its matrices are those "
   .. "of `from` plus the products of the adapters", default = "keep", one_of = {"keep", "merge"}},
  {"sources", "table", "for tensors of `to` that take one of another name: {[\"head.weight\"] = \"embedding.weight\"}"},
  {"bucket_bytes", "integer", "most bytes of the buffer that a rank sends and receives with", default = 64 * 2 ^ 20,
   at_least = 64},
}

-- Returns the products of the adapters of a trainer.
local function products_of(trainer)
  local lora, source_of = require "zt.ckpt.adapters.lora", require "zt.ckpt.adapters.source"
  local source, products = source_of.of_trainer(trainer, "zt.transfer.adapters"), {}
  for _, adapter in ipairs(lora.list(source.options, source.tensors)) do
    if adapter.target == "head" and adapter.parameter == "embedding.weight" then
      fail("zt.transfer: the head is tied to the embedding '%s', and its adapter is the head's alone, so the sum would change "
        .. "the embedding, too: keep the adapters", adapter.parameter)
    end
    products[#products + 1] = {matrix = adapter.parameter, a = adapter.name .. ".a", b = adapter.name .. ".b",
                               first_row = adapter.first, scale = adapter.scale}
  end
  return products
end

-- Returns whether both have the same tensors, adapters apart. The move itself lists the differences of others.
local function have_same_tensors(from, to)
  local function shapes_of(trainer)
    local shapes = {}
    for _, tensor in ipairs(trainer:tensors()) do
      if not tensor.name:find "%.lora%." then shapes[tensor.name] = table.concat(tensor.shape, " ") end
    end
    return shapes
  end
  local shapes = shapes_of(to)
  for name, shape in pairs(shapes_of(from)) do
    if shapes[name] ~= shape then return false end
    shapes[name] = nil
  end
  return next(shapes) == nil
end

-- Returns {name = scale} of the adapters of a trainer; nil if its model does not tell its options or has no adapters.
local function scales_of(trainer)
  local options, scales = trainer.model.options, {}
  if not options or not options.lora then return nil end
  for _, adapter in ipairs(require("zt.ckpt.adapters.lora").list(options, trainer:tensors())) do
    scales[adapter.name] = adapter.scale
  end
  return scales
end

-- Returns sentences on what makes the models different functions of equal parameters.
local function differences_of(from, to, adapters)
  local found = {}
  local function add(what, its, others)
    found[#found + 1] = ("%s is %s in the trainer to read from and %s in the trainer to set"):format(what, its, others)
  end
  for _, each in ipairs(require("zt.ckpt.pretrained.same_model").differences(from.model, to.model)) do
    add("the model's option " .. each.name, each.from or "none", each.to or "none")
  end
  local scales, others = scales_of(from), scales_of(to)
  for _, name in ipairs(adapters == "keep" and scales and others and check.sorted_keys(scales) or {}) do
    if others[name] and others[name] ~= scales[name] then
      add(("the scale of the adapter '%s', by lora.alpha,"):format(name), scales[name], others[name])
    end
  end
  return found
end

-- Adds to the sentences those on names of `sources` that a trainer does not have.
local function check_sources(sources, from, to, found)
  local function names_of(trainer)
    local names = {}
    for _, tensor in ipairs(trainer:tensors()) do names[tensor.name] = true end
    return names
  end
  local there, here = names_of(to), names_of(from)
  for _, name in ipairs(check.sorted_keys(sources)) do
    if not there[name] then found[#found + 1] = ("the trainer to set has no '%s' (sources)"):format(name) end
    if not here[sources[name]] then
      found[#found + 1] = ("the trainer to read from has no '%s' (sources)"):format(tostring(sources[name]))
    end
  end
end

-- Fails if the call would set other values than it seems to. Parts of a model (only) may go to any model that has them.
local function check_fit(from, to, options)
  if options.only and #options.only == 0 then
    fail "zt.transfer.only is an empty list, so nothing would move: give patterns, or leave it out to move everything"
  end
  local is_whole = not options.only and from ~= to and have_same_tensors(from, to)
  local found = is_whole and differences_of(from, to, options.adapters) or {}
  if options.sources then check_sources(options.sources, from, to, found) end
  if #found == 0 then return end
  fail("zt.transfer: the trainers do not fit, so nothing has moved:\n  %s", table.concat(found, "\n  "))
end

return function(from, to, value)
  check.argument("zt.transfer", "the first argument", "Trainer", from)
  check.argument("zt.transfer", "the second argument", "Trainer", to)
  local options = check.options("zt.transfer", OPTIONS, value)
  if options.only then check.items("zt.transfer.only", "string", options.only) end
  check_fit(from, to, options)
  local merged = options.adapters == "merge" and products_of(from) or nil
  return move(from, to, {only = options.only, merged = merged, sources = options.sources, bucket_bytes = options.bucket_bytes})
end
