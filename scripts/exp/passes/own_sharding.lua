-- A residency policy of one's own: of the units whose gradients and state zero.shard spreads over the ranks, those with the most
-- elements keep their parameters in parts, too, and are gathered for each use. The others stay whole.
--
--   ztoolkit run -n 2 scripts/exp/passes/own_sharding.lua --largest 2
--
-- The losses are those of zero.shard at stages 2 and 3, to the bit, which the script checks: 0.60 after 200 steps, two ranks. The
-- report shows what a rank holds.
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local o = zt.cli{name = "own_sharding", about = "Parameters of the largest units in parts.", options = {
  {"steps", 200, "optimizer steps", at_least = 1}, {"largest", 2, "units in parts", at_least = 0},
}}
local VOCAB, SEQ, SIZE, NOISE = 32, 32, {16, 33}, 0.1
local mesh = comm.mesh{dp = -1}

-- Returns a set of the indices of the largest units.
local function chosen(units)
  local sorted, set = {}, {}
  for _, unit in ipairs(units) do if unit.trainable then sorted[#sorted + 1] = unit end end
  table.sort(sorted, function(a, b) return a.numel > b.numel or (a.numel == b.numel and a.index < b.index) end)
  for place = 1, math.min(o.largest, #sorted) do set[sorted[place].index] = true end
  return set
end

local policy = zt.pass{
  name = "largest_in_parts", phase = "reduction", mesh = mesh, differs_along = {},
  apply = function(program, info)
    local cut, list = chosen(info.units), {}
    for index in pairs(cut) do
      if #program.units[index + 1].shard_axes == 0 then return program end -- nothing is spread over one rank
      program.units[index + 1].params = "sharded"
    end
    for _, action in ipairs(program.actions) do
      local units = {}
      if action.kind == "F" or action.kind == "B" then
        for _, unit in ipairs(info.positions[action.target + 1].units) do if cut[unit] then units[#units + 1] = unit end end
      end
      for _, unit in ipairs(units) do list[#list + 1] = {kind = "UNSHARD", target = unit, axes = {"dp"}, wait = true} end
      -- zero.shard gathers parameters after the update; those in parts are gathered when they are used.
      local is_gather = action.kind == "UNSHARD"
      if not (is_gather and cut[action.target]) then list[#list + 1] = action end
      for _, unit in ipairs(units) do list[#list + 1] = {kind = "RESHARD", target = unit} end
    end
    program.actions = list
    return program
  end,
}
local model = nn.gpt{layers = 2, hidden = 64, heads = 2, vocab = VOCAB, seq = SEQ, family = "llama", seed = 1}
local function trainer_of(stage, pass)
  local program = zt.program(model):apply(zero.shard{stage = stage, axis = mesh.dp, node_shared = false, gather_bucket_bytes = 0})
  return zt.trainer(pass and program:apply(pass) or program, {optimizer = optim.adamw{lr = 1e-2, weight_decay = 0.1}, clip = 1})
end
local mine, others = trainer_of(2, policy), {trainer_of(2), trainer_of(3)}
if zt.world.rank == 0 then print(mine:report()) end
-- Each token is the one before it plus 1, but for some noise.
local function batch(step)
  local draw = zt.generator(1000 * step + zt.world.rank)
  local noise = zt.rand(SIZE, {generator = draw}):lt(NOISE) * zt.randint(VOCAB, SIZE, {generator = draw})
  local all = (noise + 1):cumsum(1):remainder(VOCAB):to "int64"
  return {tokens = all:narrow(1, 0, SEQ):contiguous(), labels = all:narrow(1, 1, SEQ):contiguous()}
end
for step = 1, o.steps do
  local data = batch(step)
  local loss = mine:step(data).loss
  for _, other in ipairs(others) do assert(other:step(data).loss == loss, "the losses differ") end
  if zt.world.rank == 0 and (step % 50 == 0 or step == o.steps) then print(("step %4d  loss %.4f"):format(step, loss)) end
end
