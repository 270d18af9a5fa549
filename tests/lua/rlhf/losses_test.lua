-- Compares the losses of zt.rlhf with a golden file of PyTorch (tests/oracle/make_rlhf.py) in fp64: the same sequences packed,
-- padded left and right and one by one, in one and in several micro-batches. Also runs on two ranks and on three.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, rlhf, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.rlhf", require "zt.zero"
local loss_rows = require "rlhf.loss_rows"

local BOUND = 1e-12 -- relative to the largest wanted number
local golden = loss_rows.golden
local mesh = comm.mesh{dp = -1}

-- By case of the golden file: the losses, what their outputs are called, and what rows they need.
local loss = rlhf.loss
local CASES = {
  ppo = {loss.ppo{}}, ppo_dual = {loss.ppo{dual_clip = 1.5}},
  ppo_entropy = {loss.ppo{entropy = 0.02, mean = "sequence"}, outputs = {"logprobs", "entropy"}},
  ppo_ptx = {loss.ppo{}, loss.ptx{coefficient = 0.7}, with_ptx = true},
  grpo_k3 = {loss.grpo{kl = {}, mean = "sequence"}},
  grpo_k2 = {loss.grpo{kl = {estimator = "k2", coefficient = 0.3}, clip = {low = 0.1, high = 0.3}}},
  grpo_corrected = {loss.grpo{kl = {corrected = true}, mean = "constant", max_tokens = 6}},
  gspo = {loss.grpo{level = "sequence", clip = {low = 0.05, high = 0.1}, mean = "sequence"}},
  gspo_token = {loss.grpo{level = "sequence", clip = {low = 0.05, high = 0.1}}},
  grpo_off_policy = {loss.grpo{}, fields = {"correction"}},
  value = {loss.value{}, outputs = {"values"}},
  value_sequence = {loss.value{clip = 0, mean = "sequence", coefficient = 0.5}, outputs = {"values"}},
  value_constant = {loss.value{mean = "constant", max_tokens = 6}, outputs = {"values"}},
  reward = {loss.reward{}, outputs = {"values"}, in_pairs = true},
  reward_margin = {loss.reward{margin = 0.5, center = 0.01}, outputs = {"values"}, in_pairs = true},
  reward_divergence = {loss.reward{at = "divergence"}, outputs = {"values"}, in_pairs = true},
  dpo = {loss.dpo{}, in_pairs = true},
  dpo_smooth = {loss.dpo{label_smoothing = 0.2, length_normalise = true, beta = 0.5}, in_pairs = true},
  dpo_robust = {loss.dpo{kind = "robust", label_smoothing = 0.2, sft = 0.3}, in_pairs = true},
  dpo_hinge = {loss.dpo{kind = "hinge", beta = 0.7}, in_pairs = true},
  dpo_ipo = {loss.dpo{kind = "ipo", beta = 0.4}, in_pairs = true},
  dpo_kto = {loss.dpo{kind = "kto", beta = 0.6}, in_pairs = true},
  distil = {loss.distil{}, outputs = {"logits"}},
  distil_reverse = {loss.distil{kind = "reverse", temperature = 2}, outputs = {"logits"}},
  distil_jsd = {loss.distil{kind = "jsd", beta = 0.3, mean = "sequence"}, outputs = {"logits"}},
  distil_top = {loss.distil{kind = "reverse", top = 3}, outputs = {"logits"}},
  distil_top_jsd = {loss.distil{kind = "jsd", top = 3, temperature = 1.3}, outputs = {"logits"}, is_warm = true},
}

local function assert_close(got, wanted, what)
  lu.assertEquals(got:numel(), wanted:numel(), what)
  local largest = math.max(wanted:abs():max():item(), 1e-3)
  local off = (got:flatten() - wanted:flatten()):abs():max():item() / largest
  lu.assertTrue(off <= BOUND, ("%s: %g off"):format(what, off))
end

local function trainer_of(case, micro_batches, stage)
  local model = nn.sequential{{"tables", loss_rows.layer(case.outputs or {"logprobs"})}}
  for i, layer in ipairs(case) do
    model = model:append(layer, "loss" .. i)
  end
  local program = zt.program(model, {micro_batches = micro_batches, precision = "fp64"})
  return zt.trainer(program:apply(zero.shard{axis = mesh.dp, stage = stage}), {optimizer = optim.sgd{lr = 1}})
end

-- Returns this rank's part of the batch, in a number of rows that micro-batches divide.
local function batch_of(case, layout, micro_batches)
  local batch = loss_rows.batch(layout, case.in_pairs, case.with_ptx)
  if case.is_warm then batch.teacher_logprobs = batch.warm_teacher_logprobs end
  batch.warm_teacher_logprobs = nil
  local is_wanted = {}
  for _, name in ipairs(case.fields or {}) do is_wanted[name] = true end
  if not is_wanted.correction then batch.correction = nil end
  local rows = batch.tokens:size(0)
  local of_rank = math.ceil(rows / mesh.dp.size / micro_batches) * micro_batches
  return loss_rows.part(batch, mesh.dp.rank * of_rank, of_rank)
end

local TestLosses = {}

for name, case in pairs(CASES) do
  TestLosses["test_" .. name] = function()
    local stage = 0
    for _, layout in ipairs{"packed", "right", "left"} do
      for _, micro_batches in ipairs(layout == "right" and {1, 2, 10} or {1, 4}) do -- with 10, one by one
        stage = (stage + 1) % 4
        local what = ("%s %s in %d micro-batches, stage %d"):format(name, layout, micro_batches, stage)
        local trainer = trainer_of(case, micro_batches, stage)
        local result = trainer:step(batch_of(case, layout, micro_batches))
        assert_close(zt.tensor({result.loss}, {dtype = "float64"}), golden[name .. "/loss"], what)
        for _, parameter in ipairs(trainer:parameters()) do
          local wanted = golden[name .. "/gradient/" .. parameter:match "[^.]+$"]
          local got = trainer:gradient(parameter)
          if wanted then assert_close(got, wanted, what .. ", gradient of " .. parameter)
          else lu.assertEquals(got:abs():max():item(), 0, what) end
        end
      end
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLosses", TestLosses}})
