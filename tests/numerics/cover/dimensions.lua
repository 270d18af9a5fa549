--- The dimensions of the cover: what models, meshes and passes of cut layers may be. A combination {name = value, ...} has a
--- value of each.
local dimensions = {}

local TENSOR = {"1", "2", "3", "4", "2 sequence", "3 sequence", "4 sequence"} -- ranks that share matrices, and tokens
local CONTEXT = {"1"} -- ranks that share tokens, how, and which tokens
for _, ranks in ipairs{2, 4} do
  for _, method in ipairs{"ring", "gather", "ulysses"} do
    for _, layout in ipairs{"balanced", "contiguous"} do CONTEXT[#CONTEXT + 1] = ("%d %s %s"):format(ranks, method, layout) end
  end
end

dimensions.list = {
  {"tensor", TENSOR}, {"context", CONTEXT}, {"dp", {1, 2}}, {"stage", {0, 1, 2, 3}},
  {"pipeline", {"none", "one_f_one_b", "zb_v"}}, {"recompute", {"none", "full", "selective"}},
  {"overlap", {false, true}}, -- communication beside matmuls
  {"heads_at_once", {0, 1}}, -- key heads that ring and gather exchange together; 0: all
  {"style", {"gpt2", "llama", "qk_norm"}}, {"tied", {false, true}}, {"vocab", {127, 17}}, {"heads", {3, 6}},
  {"kv_heads", {1, 2, 3}}, {"tokens", {31, 32, 33}}, {"packed", {false, true}}, {"window", {0, 9}},
  {"ignored", {false, true}}, -- the labels of all tokens of one rank
  {"dropout", {0, 0.1}}, {"clip", {0, 0.05}}, {"tile", {0, 5}}, {"mlp", {"block", "lua", "experts"}},
  {"order", {"pp dp ep cp tp", "tp cp ep dp pp", "cp pp tp dp ep"}}, {"precision", {"fp32", "bf16"}},
  {"backend", {"local", "shm"}},
}

--- Dimensions that change the same code: all their values are combined.
dimensions.products = {
  {"tensor", "context", "pipeline"}, {"tensor", "context", "stage"}, {"tensor", "heads", "kv_heads", "style"},
  {"context", "tokens", "packed", "window"},
}

--- Random combinations besides the pairs.
dimensions.random = 0

local MOST_RANKS = 8

--- Returns the sizes of the mesh's axes; of dimensions without a value the smallest that the others allow.
function dimensions.sizes(of)
  local function first_of(text) return tonumber(text:match "^%d") end
  return {
    tp = first_of(of.tensor or of.overlap and "2" or "1"), cp = first_of(of.context or "1"), dp = of.dp or 1,
    pp = (of.pipeline or "none") == "none" and 1 or 2, ep = of.mlp == "experts" and 2 or 1,
  }
end

--- Returns whether a combination may have these values; dimensions without one can still have any.
function dimensions.is_allowed(of)
  local sizes, ranks = dimensions.sizes(of), 1
  for _, size in pairs(sizes) do ranks = ranks * size end
  if ranks > MOST_RANKS then return false end
  local heads = of.heads or 6
  if heads % (of.kv_heads or 1) ~= 0 or heads < sizes.tp then return false end
  local is_ulysses = of.context and of.context:find "ulysses"
  if is_ulysses and math.floor(heads / sizes.tp) < sizes.cp then return false end -- a head for each rank
  if of.overlap and sizes.tp == 1 or is_ulysses and (of.heads_at_once or 0) > 0 then return false end
  return not of.ignored or sizes.cp > 1 or not of.context
end

return dimensions
