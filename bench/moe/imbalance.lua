-- Times forward and backward of a mixture of experts with recorded routes of uneven load, in alternation with balanced ones.
--
--   mpirun -n 2 --bind-to core ztoolkit run bench/moe/imbalance.lua
--
-- All ranks share the experts, one expert per token. `bound` is the load of the fullest rank divided by the mean load, averaged
-- over the steps: the relative time if the experts took all of it. The model is a mixture between an embedding and a head of 64
-- tokens, which take 2 % of the operations. The update is not timed.
local zt = require "zt"
local comm, moe, nn, optim, zero = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim", require "zt.zero"

local VOCAB, CYCLE = 64, 4 -- a round of a workload has CYCLE steps

local o = zt.cli{
  name = "imbalance", about = "Times a mixture of experts under uneven loads.",
  options = {
    {"experts", 8, "number of experts", at_least = 2}, {"hidden", 512, "columns of a token", at_least = 1},
    {"ffn", 2048, "columns inside an expert", at_least = 1}, {"samples", 16, "samples per rank", at_least = 1},
    {"seq", 128, "tokens per sample", at_least = 1}, {"rounds", 7, "timed rounds, after one untimed round", at_least = 1},
    {"precision", "fp32", "type of parameters and arithmetic", one_of = {"fp32", "bf16", "fp16"}},
    {"dispatcher", "all_to_all", "how tokens are sent: all_to_all or all_gather"},
  },
}
local mesh = comm.mesh{dp = -1, ep = zt.world.size}
local axis, own, tokens = mesh:join{"dp", "ep"}, o.experts / zt.world.size, o.samples * o.seq

local function all_equal() return 1 end
local function hot(expert) return function(e) return e == expert and o.experts - 1 or 1 end end -- half of all tokens

-- By workload: weight(step) returns a function from an expert to its share of the tokens, not normalised.
local WORKLOADS = {
  {"balanced", function() return all_equal end},
  {"hot expert", function() return hot(0) end},
  {"hot rank", function() return function(e) return e < own and 3 or 1 end end},
  {"empty expert", function() return function(e) return e == 0 and 0 or 1 end end},
  {"rotating", function(step) return hot((step * own + math.floor(step / zt.world.size)) % o.experts) end},
  {"burst", function(step) return step % CYCLE == 0 and function(e) return e == 0 and 1 or 0 end or all_equal end},
}

-- Returns the experts of all tokens of a rank: consecutive tokens have different ones, as far as the shares allow.
local function routes_of(share)
  local sum, done, list = 0, {}, {}
  for e = 0, o.experts - 1 do sum, done[e] = sum + share(e), 0 end
  for token = 1, tokens do
    local best, lag = nil, -math.huge
    for e = 0, o.experts - 1 do
      local behind = token * share(e) / sum - done[e]
      if behind > lag then best, lag = e, behind end
    end
    list[token], done[best] = best, done[best] + 1
  end
  return list, done
end

local model = nn.sequential{
  {"embedding", nn.embedding{vocab = VOCAB, hidden = o.hidden, positions = o.seq}},
  {"moe", moe.layers{experts = o.experts, hidden = o.hidden, ffn = o.ffn, top_k = 1, axis = mesh.ep, dispatcher = o.dispatcher,
                     router = {routes = "routes"}}},
  {"head", nn.lm_loss{vocab = VOCAB, hidden = o.hidden}},
}
local program = zt.program(model, {precision = o.precision}):apply(zero.shard{stage = 0, axis = axis})
local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 0}})
local ids = zt.arange(tokens):mul(7919):remainder(VOCAB):to("int64"):view({o.samples, o.seq})

-- Makes the batches of a workload, with the counts of their experts.
local function prepare(name, share_at)
  local workload = {name = name, steps = {}, bound = 0, seconds = {}}
  for step = 0, CYCLE - 1 do
    local list, counts = routes_of(share_at(step))
    local most = 0
    for rank = 0, zt.world.size - 1 do
      local load = 0
      for e = rank * own, (rank + 1) * own - 1 do load = load + counts[e] end
      most = math.max(most, load)
    end
    workload.bound = workload.bound + most * zt.world.size / tokens / CYCLE
    local routes = zt.tensor(list, {dtype = "int64"}):view({o.samples, o.seq, 1})
    workload.steps[step + 1] = {counts = counts, batch = {tokens = ids, labels = ids, routes = routes}}
  end
  return workload
end

local function check(workload, step, load)
  for e = 0, o.experts - 1 do
    local wanted = step.counts[e] * zt.world.size
    if load[e + 1] ~= wanted then
      error(("%s: expert %d got %g tokens instead of %d"):format(workload.name, e, load[e + 1], wanted), 0)
    end
  end
end

-- Returns the seconds of forward and backward, on average over the steps of a round.
local function round_of(workload)
  local seconds = 0
  for _, step in ipairs(workload.steps) do
    axis:barrier()
    local began = zt.now()
    trainer:forward(step.batch)
    trainer:backward()
    axis:barrier()
    seconds = seconds + zt.now() - began
    check(workload, step, trainer:finish_step().stats["moe.router.load"])
  end
  return seconds / CYCLE
end

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

local workloads = {}
for i, entry in ipairs(WORKLOADS) do workloads[i] = prepare(entry[1], entry[2]) end
for _, workload in ipairs(workloads) do round_of(workload) end
for _ = 1, o.rounds do
  for _, workload in ipairs(workloads) do table.insert(workload.seconds, round_of(workload)) end
end

if zt.world.rank == 0 then
  print(("%d ranks, %s, %d experts, %d tokens per rank\n"):format(zt.world.size, o.precision, o.experts, tokens))
  print("| workload | ms (spread) | times balanced (spread) | bound |\n| --- | --- | --- | --- |")
  for _, workload in ipairs(workloads) do
    workload.ratios = {}
    for round, seconds in ipairs(workload.seconds) do workload.ratios[round] = seconds / workloads[1].seconds[round] end
  end
  local function text(values, form, unit)
    local middle = median(values)
    return (form .. " (%.0f %%)"):format(middle * unit, 100 * (values[#values] - values[1]) / middle)
  end
  for _, workload in ipairs(workloads) do
    local ms, times = text(workload.seconds, "%.1f", 1000), text(workload.ratios, "%.2f", 1)
    print(("| %s | %s | %s | %.2f |"):format(workload.name, ms, times, workload.bound))
  end
end
