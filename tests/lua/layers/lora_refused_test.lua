-- Tests what adapters refuse.
local lu = require "luaunit"
local zt = require "zt"
local moe, nn, optim = require "zt.moe", require "zt.nn", require "zt.optim"

local TestLoraRefused = {}

local function refused(text, make) lu.assertErrorMsgContains(text, make) end

function TestLoraRefused.test_options()
  local function gpt(lora, more)
    local options = {layers = 2, hidden = 8, heads = 2, vocab = 11, seq = 4, lora = lora}
    for key, value in pairs(more or {}) do options[key] = value end
    return function() return nn.gpt(options) end
  end
  refused("nn.gpt.lora.targets: 'w' is none of 'q', 'k'", gpt{targets = {"w"}})
  refused("nn.gpt.lora.targets names 'q' twice", gpt{targets = {"q", "q"}})
  refused("nn.gpt.lora.targets: 'v' is a part of 'qkv', so these rows would have two adapters", gpt{targets = {"v", "qkv"}})
  refused("nn.gpt.lora.targets is empty, so nothing would be trained", gpt{targets = {}})
  refused("only an MLP with swiglu has the parts 'gate' and 'up_proj': name 'up'", gpt{targets = {"gate"}})
  refused("there is no block 2: the model has 2 blocks, numbered from 0", gpt{layers = {2}})
  refused("'head' is the only target: leave it out", gpt{layers = {0}, targets = {"head"}})
  refused("nn.gpt.lora.ranks: no adapter is named 'blocks.0.k': did you mean 'blocks.0.q'", gpt{ranks = {["blocks.0.k"] = 1}})
  refused("nn.gpt.lora.ranks.q must be at least 1, got 0", gpt{ranks = {q = 0}})
  refused("lora.rank must be at least 1, got 0", gpt{rank = 0})
  for _, alpha in ipairs{0, -1, 0 / 0, 1 / 0} do
    refused("lora.alpha must lie between", gpt{alpha = alpha})
    refused("nn.gpt.lora.alphas.q must lie between", gpt{alphas = {q = alpha}})
  end
  refused("nn.gpt.lora.layers is empty, so nothing would be trained", gpt{layers = {}})
  refused("nn.gpt.lora.layers names the block 0 twice", gpt{layers = {0, 0}})
  refused("lora: unknown option 'ranl'", gpt{ranl = 2})
  refused("nn.mlp.lora.layers is an option of nn.gpt, which has blocks: leave it out",
    function() nn.mlp{hidden = 4, ffn = 4, lora = {layers = {1}}} end)
  refused("nn.linear.lora.targets: the layer has a single matrix, which gets the adapter",
    function() nn.linear{["in"] = 4, out = 4, lora = {targets = {"linear"}}} end)
  refused("Experts cannot have adapters: the matrices of all experts are one tensor",
    gpt({targets = {"up"}}, {mlp = function() return {nn.linear{["in"] = 8, out = 8}} end}))
  refused("the expert 'mlp' has the option lora: experts cannot have adapters", function()
    moe.experts{experts = 2, expert = nn.mlp{hidden = 4, ffn = 4, lora = {rank = 1}}}
  end)
  refused("nn.grouped_mlp: unknown option 'lora'", function() nn.grouped_mlp{groups = 2, hidden = 4, ffn = 4, lora = {}} end)
end

local function trainer_of(lora)
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, lora = lora}
  return zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.1}})
end

function TestLoraRefused.test_phases_without_adapters()
  refused("trainer:with_adapters: the model has no adapters", function() trainer_of():with_adapters(false, print) end)
  refused("takes true or false, and a function", function() trainer_of{}:with_adapters(false) end)
  local trainer, tokens = trainer_of{}, zt.zeros({2, 4}, {dtype = "int64"})
  local batch = {tokens = tokens, labels = tokens}
  trainer:with_adapters(false, function()
    refused("layers compute without their adapters within trainer:with_adapters(false, ...), so there is nothing to train",
      function() trainer:step(batch) end)
    refused("so there is nothing to train", function() trainer:forward(batch) end)
  end)
  trainer:forward(batch)
  refused("trainer:with_adapters", function() trainer:with_adapters(false, print) end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLoraRefused", TestLoraRefused}})
