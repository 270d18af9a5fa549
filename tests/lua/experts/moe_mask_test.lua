-- Tests which tokens count in a router: loads, losses, room and statistics are those of a batch without the other tokens. Runs on
-- one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, data, moe, nn = require "zt.comm", require "zt.data", require "zt.moe", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"
local router_alone = require "support.router_alone"
local temporary = require "support.temporary"

local EXPERTS, TOKENS, VALID = 4, 8, 4
local ranks, rank = zt.world.size, zt.world.rank
local mesh = comm.mesh{dp = ranks}
local NAMES = {"load", "dropped", "tokens", "entropy", "logit_rms"}

-- Two samples. The second one has VALID tokens; the rest is padding, of which all choose expert 0.
local logits = zt.randn({2, TOKENS, EXPERTS}, {seed = 5, dtype = "float64"})
logits[1]:narrow(0, VALID, TOKENS - VALID):copy_(zt.tensor({9, 0, 0, 0}, {dtype = "float64"}):expand{TOKENS - VALID, EXPERTS})
local mask = zt.ones({2, TOKENS}, {dtype = "int64"})
mask[1]:narrow(0, VALID, TOKENS - VALID):fill_(0)

local function trainer_of(more, top_k)
  local options = {hidden = EXPERTS, experts = EXPERTS, top_k = top_k or 2}
  for key, value in pairs(more or {}) do options[key] = value end
  return router_alone.trainer(moe.router(options), EXPERTS,
                              {passes = {zero.shard{stage = 1, axis = mesh.dp}}, precision = "fp64"})
end

-- Returns the result of a step in which all ranks have the same batch: losses are means over samples.
local function step(more, batch) return (trainer_of(more)):step(batch) end

-- Only the valid tokens, as one sample.
local function valid() return logits:view({2 * TOKENS, EXPERTS}):narrow(0, 0, TOKENS + VALID):unsqueeze(0):contiguous() end

local TestMask = {}

local function assert_statistics(got, wanted)
  for _, name in ipairs(NAMES) do
    local a, b = got.stats["router." .. name], wanted.stats["router." .. name]
    if type(b) == "table" then lu.assertEquals(a, b, name) else lu.assertAlmostEquals(a, b, 1e-12, name) end
  end
end

function TestMask:test_statistics_and_losses_per_micro_batch()
  local options = {losses = {balance = 0.5, per = "micro_batch"}}
  local wanted, got = step(options, {logits = valid()}), step(options, {logits = logits, loss_mask = mask})
  assert_statistics(got, wanted)
  lu.assertAlmostEquals(got.terms.balance, wanted.terms.balance, 1e-12)
  local unmasked = step(options, {logits = logits})
  lu.assertTrue(math.abs(unmasked.terms.balance - wanted.terms.balance) > 1e-3)
end

function TestMask:test_losses_per_sample_are_means_over_its_tokens()
  local options = {losses = {balance = 0.5, z = 0.25}}
  local first = step(options, {logits = logits:narrow(0, 0, 1):contiguous()})
  local second = step(options, {logits = logits:narrow(0, 1, 1):narrow(1, 0, VALID):contiguous()})
  local got = step(options, {logits = logits, loss_mask = mask})
  for _, name in ipairs{"balance", "z_loss"} do
    lu.assertAlmostEquals(got.terms[name], (first.terms[name] + second.terms[name]) / 2, 1e-12)
  end
end

-- The last rank alone has padding, and its batch alone has the field.
function TestMask:test_losses_per_batch_are_over_all_ranks()
  local options = {losses = {balance = 0.5, per = "batch"}, batch_axes = {"dp"}}
  local own
  if ranks == 1 then own = {logits = logits, loss_mask = mask}
  elseif rank == 0 then own = {logits = logits:narrow(0, 0, 1):contiguous()}
  else own = {logits = logits:narrow(0, 1, 1):contiguous(), loss_mask = mask:narrow(0, 1, 1):contiguous()} end
  local wanted = step(options, {logits = valid()})
  lu.assertAlmostEquals(step(options, own).terms.balance, wanted.terms.balance, 1e-12)
end

-- A sample without any token that counts adds nothing.
function TestMask:test_a_sample_of_padding()
  local options, none = {losses = {balance = 0.5, z = 0.25}}, mask:clone()
  none[1]:fill_(0)
  local first = step(options, {logits = logits:narrow(0, 0, 1):contiguous()})
  local got = step(options, {logits = logits, loss_mask = none})
  assert_statistics(got, first)
  lu.assertAlmostEquals(got.terms.balance, first.terms.balance / 2, 1e-12)
  lu.assertEquals(step(options, {logits = logits, loss_mask = none * 0}).terms.balance, 0)
end

-- All tokens choose expert 0, which has room for 4. Padding comes first in the sample, with the largest weights.
function TestMask:test_padding_takes_no_room()
  local all = zt.zeros({1, TOKENS, EXPERTS}, {dtype = "float64"})
  all:narrow(2, 0, 1):fill_(1)
  all:narrow(1, 0, VALID):mul_(2)
  local counted = zt.ones({1, TOKENS}, {dtype = "int64"})
  counted:narrow(1, 0, VALID):fill_(0)
  local function kept(capacity, choice, field)
    local trainer, seen = trainer_of({capacity = capacity, choice = choice}, 1)
    local result = trainer:step{logits = all, [field or "loss_mask"] = counted}
    local tokens = {}
    for token, experts in ipairs(seen.experts[0]:tolist()) do
      for _, expert in ipairs(experts) do tokens[token] = tokens[token] or expert == 0 end
      tokens[token] = tokens[token] and 1 or 0
    end
    return tokens, result.stats["router.dropped"]
  end
  for _, keep in ipairs{"probability", "place", "random"} do
    local tokens, dropped = kept{train = 2, min = 1, keep = keep}
    lu.assertEquals({tokens, dropped}, {{0, 0, 0, 0, 1, 1, 1, 1}, 0}, keep)
  end
  lu.assertEquals((kept({train = 2, min = 1}, "expert")), {0, 0, 0, 0, 1, 1, 1, 1})
  lu.assertEquals({kept({train = 2, min = 1}, nil, "other")}, {{1, 1, 1, 1, 0, 0, 0, 0}, 4 * ranks})
end

-- data.documents tells where it pads; loss_mask comes before that, and `mask` names another field.
function TestMask:test_which_field_is_used()
  local function tokens(more, batch)
    batch.logits = logits
    return step(more, batch).stats["router.tokens"] / ranks
  end
  local none, inverse = mask * 0, 1 - mask
  lu.assertEquals(tokens({}, {}), 2 * TOKENS)
  lu.assertEquals(tokens({}, {labels = inverse * -100}), 2 * TOKENS) -- ignored labels alone exclude nothing
  lu.assertEquals(tokens({}, {padding = inverse}), TOKENS + VALID)
  lu.assertEquals(tokens({}, {padding = none, loss_mask = mask}), TOKENS + VALID)
  lu.assertEquals(tokens({mask = "own"}, {own = mask:to "float32", loss_mask = none}), TOKENS + VALID)
  lu.assertEquals(tokens({mask = "none"}, {loss_mask = none}), 2 * TOKENS)
end

-- The documents "ab\n" and "c\n" have two predictions and one. The rest of their rows is padding.
function TestMask:test_documents()
  if ranks > 1 then return end
  local folder = temporary()
  zt.fs.make_folder(folder)
  zt.write_file(folder .. "/lines.txt", "ab\nc\n")
  data.tokenize{input = folder .. "/lines.txt", output = folder .. "/lines.npy", tokenizer = data.tokenizer.bytes()}
  local text = data.documents{path = folder .. "/lines.npy", seq = 4, batch = 2, separator = 10, validation = 0, shuffle = false}
  local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = text.vocab, seq = 4, mlp = function()
    return moe.layers{experts = 4, hidden = 8, ffn = 8}
  end}
  local trainer = zt.trainer(zt.program(model), {optimizer = optim.sgd{lr = 0.1}})
  local result = trainer:step(text:batch(0))
  lu.assertEquals({result.stats["blocks.0.router.tokens"], result.tokens}, {3, 3})
end

-- A mask without padding changes no bit.
function TestMask:test_a_mask_of_ones()
  for _, per in ipairs{"sample", "micro_batch", "batch"} do
    local options = {losses = {balance = 0.5, per = per, z = 0.1}, batch_axes = per == "batch" and {"dp"} or nil}
    local plain, masked = step(options, {logits = logits}), step(options, {logits = logits, loss_mask = mask * 0 + 1})
    lu.assertEquals(masked.loss, plain.loss)
  end
end

function TestMask:test_a_wrong_mask()
  local trainer = trainer_of{mask = "own"}
  lu.assertErrorMsgContains("'own'", trainer.step, trainer, {logits = logits})
  local other = trainer_of()
  lu.assertErrorMsgContains("the batch field 'loss_mask' says which tokens count, so it must be [2, 8]", other.step, other,
                            {logits = logits, loss_mask = zt.ones{2}})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestMask", TestMask}})
