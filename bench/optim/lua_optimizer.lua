-- Measures what an optimizer written in Lua costs beside one in C++. All take turns in one run; prints medians of their STEP
-- actions on one rank. The first table is of a GPT: optim.adamw, zt.optimizer with ATen's fused AdamW, and the same with one
-- operator after the other. The second is of many layers of 8 parameters each, where the time is that of the calls.
--
--   ztoolkit run bench/optim/lua_optimizer.lua
local zt = require "zt"
local nn, optim = require "zt.nn", require "zt.optim"

local o = zt.cli{
  name = "lua_optimizer", about = "Times an optimizer written in Lua beside optim.adamw.",
  options = {
    {"layers", 6, "blocks", at_least = 1}, {"hidden", 512, "width", at_least = 1}, {"vocab", 8192, "tokens", at_least = 1},
    {"units", 128, "layers of 8 parameters in the second table", at_least = 1},
    {"steps", 15, "timed steps of each, after one untimed step", at_least = 1},
  },
}
local LR, BETA1, BETA2, EPS, DECAY = 1e-4, 0.9, 0.999, 1e-8, 0.1
local STATES = {exp_avg = "like", exp_avg_sq = "like"}

local function fused(info, p, g, state)
  zt._fused_adamw_({p}, {g}, {state.exp_avg}, {state.exp_avg_sq}, {}, {zt.tensor(info.step)}, {
    lr = info.lr, beta1 = BETA1, beta2 = BETA2, weight_decay = info.decay, eps = EPS, amsgrad = false, maximize = false})
end

local function by_operators(info, p, g, state)
  local m, v = state.exp_avg:lerp_(g, 1 - BETA1), state.exp_avg_sq:mul_(BETA2):addcmul_(g, g, {value = 1 - BETA2})
  p:mul_(1 - info.lr * info.decay)
  p:addcdiv_(m, v:sqrt():div_((1 - BETA2 ^ info.step) ^ 0.5):add_(EPS), {value = -info.lr / (1 - BETA1 ^ info.step)})
end

local function in_lua(name, step)
  return function() return zt.optimizer{name = name, lr = LR, weight_decay = DECAY, states = STATES, step = step} end
end

local FORMS = {
  {"optim.adamw", function() return optim.adamw{lr = LR, weight_decay = DECAY} end},
  {"zt.optimizer, fused operator", in_lua("fused", fused)}, {"zt.optimizer, operators", in_lua("operators", by_operators)},
  {"zt.optimizer, empty function", in_lua("empty", function() end)},
}

local function gpt() return nn.gpt{layers = o.layers, hidden = o.hidden, heads = 8, vocab = o.vocab, seq = 8, tied = false} end

local function small_layers()
  local layers = {nn.embedding{vocab = 8, hidden = 1}}
  for i = 1, o.units do
    layers[i + 1] = nn.layer{params = {w = zt.zeros{8}}, forward = function(self, h) return h + self.w:mean() end}
  end
  layers[#layers + 1] = zt.loss(function(out) return out.h:mean() end, {inputs = {"h"}})
  return nn.sequential(layers)
end

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

-- Returns the milliseconds of the actions of a kind.
local function ms_of(kind, events)
  local ms = 0
  for _, event in ipairs(zt.json.decode("[" .. events .. "]")) do
    if event.dur and event.tid == 0 and event.name:match "^%S+" == kind then ms = ms + event.dur / 1000 end
  end
  return ms
end

-- Returns the median milliseconds of the STEP actions by form, and the losses of the last step.
local function measure(model, batch)
  local trainers, times, losses = {}, {}, {}
  for i, form in ipairs(FORMS) do
    trainers[i], times[i] = zt.trainer(zt.program(model()), {optimizer = form[2](), clip = 1}), {}
  end
  for step = 0, o.steps do
    for i, trainer in ipairs(trainers) do
      trainer:trace_start()
      losses[i] = trainer:step(batch).loss
      if step > 0 then table.insert(times[i], ms_of("STEP", trainer:trace_events())) end
    end
  end
  for i = 1, #FORMS do times[i] = median(times[i]) end
  return times, losses
end

local tokens = zt.arange(8):remainder(8):to("int64"):view{1, 8}
local batch = {tokens = tokens, labels = tokens}
local times, losses = measure(gpt, batch)
print "| a GPT | ms | times optim.adamw | loss of the last step |\n|---|---|---|---|"
for i, form in ipairs(FORMS) do
  print(("| %s | %.2f | %.2f | %.6f |"):format(form[1], times[i], times[i] / times[1], losses[i]))
end
times = measure(small_layers, batch)
print(("\n| %d layers of 8 parameters | us per unit | more than optim.adamw |\n|---|---|---|"):format(o.units))
for i, form in ipairs(FORMS) do
  local each = 1000 / (o.units + 1)
  print(("| %s | %.1f | %.1f |"):format(form[1], times[i] * each, (times[i] - times[1]) * each))
end
