-- Compares runs over several ranks with the same run on one.
local lu = require "luaunit"

local one_rank = {}

--- Returns the numbers of three steps of a trainer and of an evaluation: losses and gradient norms. `batch(step)` returns
-- this rank's batch.
function one_rank.run(trainer, batch)
  local results = {}
  for step = 1, 3 do
    local result = trainer:step(batch(step))
    results[step] = {result.loss, result.grad_norm}
  end
  results[4] = {trainer:evaluate(batch(9)).loss}
  return results
end

--- Fails unless each number is within 1e-12 of the wanted one.
function one_rank.assert_close(results, wanted, what)
  for step, pair in ipairs(wanted) do
    for i, number in ipairs(pair) do
      lu.assertAlmostEquals(results[step][i] / number, 1, 1e-12, ("%s, step %d, number %d"):format(what, step, i))
    end
  end
end

--- Fails unless the trainers have the same tensors, within `bound`.
function one_rank.assert_same_tensors(trainer, alone, bound, what)
  for _, tensor in ipairs(alone:tensors()) do
    local difference = (trainer:parameter(tensor.name) - alone:parameter(tensor.name)):abs():max():item()
    lu.assertTrue(difference <= bound, what .. ": " .. tensor.name)
  end
end

--- Fails unless a trainer has the numbers and, within 1e-10, the tensors of the one on one rank. An update of adamw is at most
--- the learning rate, 0.01, with the relative error of its gradient: 1e-12 of the largest gradients, and more of smaller ones.
function one_rank.assert_trains_alike(results, trainer, wanted, alone, what)
  one_rank.assert_close(results, wanted, what)
  one_rank.assert_same_tensors(trainer, alone, 1e-10, what)
end

--- Fails unless `train{stage =, recompute =, precision =}` returns the same bits at each stage of zero.shard, with and without
--- recompute, in fp32 and in bf16.
function one_rank.assert_same_bits_of_stages(train)
  for _, precision in ipairs{"fp32", "bf16"} do
    local wanted
    for stage = 0, 3 do
      local results = train{stage = stage, recompute = stage % 2 == 1, precision = precision}
      wanted = wanted or results
      lu.assertEquals(results, wanted)
    end
  end
end

return one_rank
