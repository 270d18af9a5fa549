--- The dimensions of the cover of data that move (offload.move): what moves and how, and what models, meshes and passes may be. A
--- combination {name = value, ...} has a value of each.
local dimensions = {}

local WHERE = {"device", "nvme"}

dimensions.list = {
  {"optimizer", WHERE}, {"gradients", WHERE}, {"parameters", WHERE}, {"activations", WHERE},
  {"room", {"ratio 0", "ratio 0.3", "ratio 1", "memory 30000"}}, {"staging", {"default", "least"}}, {"slice", {4096, 1048576}},
  {"disk", {"direct", "cached, two folders", "checksum, small blocks"}}, {"activations_stay", {0, 1}},
  {"stage", {0, 1, 2, 3}}, {"dp", {1, 2, 3}}, {"every", {"step", "micro_batch"}}, {"pipeline", {"none", "one_f_one_b", "zb_v"}},
  {"mlp", {"block", "lua", "experts"}}, {"recompute", {"none", "full"}}, {"precision", {"fp64", "fp32", "bf16", "fp16"}},
  {"clip", {0, 0.05}}, {"frozen", {false, true}}, {"tied", {false, true}}, {"by_hand", {false, true}},
  {"rule", {"adamw", "adam", "lion", "sgd", "lua_momentum"}}, {"dropout", {0, 0.1}},
}

--- Dimensions that change the same code: all their values are combined.
dimensions.products = {
  {"optimizer", "gradients", "parameters", "stage", "every"}, {"activations", "recompute", "pipeline", "mlp", "activations_stay"},
  {"optimizer", "precision", "rule", "room"}, {"gradients", "stage", "every", "by_hand", "mlp"},
}

--- Random combinations besides the pairs.
dimensions.random = 70

local MOST_RANKS = 6

--- Returns the sizes of the mesh's axes.
function dimensions.sizes(of)
  return {
    tp = 1, cp = 1, dp = of.dp or 1, pp = (of.pipeline or "none") == "none" and 1 or 2, ep = of.mlp == "experts" and 2 or 1,
  }
end

--- Returns whether a combination may have these values; dimensions without one can still have any.
function dimensions.is_allowed(of)
  local sizes = dimensions.sizes(of)
  if sizes.dp * sizes.pp * sizes.ep > MOST_RANKS then return false end
  if (of.parameters or "device") ~= "device" and (of.stage or 3) < 3 then return false end
  return not of.by_hand or sizes.pp == 1 -- a pipeline has no steps by hand
end

return dimensions
