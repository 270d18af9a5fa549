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

return function(from, to, value)
  check.argument("zt.transfer", "the first argument", "Trainer", from)
  check.argument("zt.transfer", "the second argument", "Trainer", to)
  local options = check.options("zt.transfer", OPTIONS, value)
  if options.only then check.items("zt.transfer.only", "string", options.only) end
  local merged = options.adapters == "merge" and products_of(from) or nil
  return move(from, to, {only = options.only, merged = merged, sources = options.sources, bucket_bytes = options.bucket_bytes})
end
