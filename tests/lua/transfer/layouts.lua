-- Trainers of small models in many layouts, for the tests of zt.transfer. All ranks draw the same.
local zt = require "zt"
local comm, moe, offload, optim, pipe, zero = require "zt.comm", require "zt.moe", require "zt.offload", require "zt.optim",
  require "zt.pipe", require "zt.zero"
local temporary = require "support.temporary"

local ranks, rank = zt.world.size, zt.world.rank

local layouts = {VOCAB = 37, SEQ = 8, folder = temporary()}
if rank == 0 then zt.mkdir_p(layouts.folder) end

-- The sizes of axes of a mesh, by the number of ranks; `experts`: those of a model with experts.
local SIZES = {
  [1] = {{}},
  [2] = {{dp = 2}, {tp = 2}, {pp = 2}, {ep = 2}},
  [3] = {{dp = 3}, {pp = 3}, {ep = 3}},
  [4] = {{dp = 4}, {dp = 2, tp = 2}, {pp = 2, tp = 2}, {dp = 2, pp = 2}, {tp = 4}, {dp = 2, ep = 2}, {ep = 2, tp = 2}, {pp = 4},
         {ep = 4}},
}
local meshes = {}
for number, sizes in ipairs(SIZES[ranks]) do
  local all = {dp = 1, ep = 1, tp = 1, pp = 1, order = {"pp", "dp", "ep", "tp"}}
  if number % 2 == 0 then all.order = {"tp", "ep", "dp", "pp"} end
  for name, size in pairs(sizes) do all[name] = size end
  meshes[number] = comm.mesh(all)
end
meshes[1]:world():barrier()

--- Returns a function dice(n) that returns one of 1 .. n.
function layouts.dice(seed)
  local state = seed * 7919 + 13
  return function(sides)
    state = (state * 16807) % 2147483647
    return math.floor(state / 65536) % sides + 1
  end
end

local function choose(dice, list) return list[dice(#list)] end

--- Draws a layout: {mesh =, stage =, shared =, moved =, precision =, trains =}; without a mesh each rank has all.
function layouts.draw(dice, is_mixture)
  local layout = {precision = choose(dice, {"fp32", "bf16", "fp64", "bf16"}), trains = dice(4) > 1, shared = dice(2) == 1}
  if dice(8) == 1 then return layout end
  repeat layout.mesh = choose(dice, meshes) until is_mixture or layout.mesh.ep.size == 1
  if layout.mesh.pp.size == 1 then layout.stage = dice(4) - 1 else layout.stage = dice(2) - 1 end
  layout.moved = layout.stage > 0 and layout.trains and layout.mesh.pp.size == 1 and dice(4) == 1
  return layout
end

function layouts.text(layout)
  local mesh = layout.mesh
  local axes = mesh and ("dp %d tp %d pp %d ep %d"):format(mesh.dp.size, mesh.tp.size, mesh.pp.size, mesh.ep.size) or "no mesh"
  return ("%s, stage %s, %s%s%s%s"):format(axes, tostring(layout.stage), layout.precision, layout.trains and ", trains" or "",
                                           layout.shared and ", shared" or "", layout.moved and ", moved" or "")
end

--- Returns the options of moe.gpt for a model that the layout can cut.
function layouts.options(seed, is_mixture, more)
  local options = {layers = 4, hidden = 24, heads = 4, kv_heads = 2, ffn = 36, family = "llama", vocab = layouts.VOCAB,
                   seq = layouts.SEQ, seed = seed}
  if is_mixture then
    options.moe = {experts = 12, ffn = 10, blocks = {1, 2}, router = {score = "sigmoid", normalise = "selected", bias = true,
                                                                       bias_rate = 0.01}}
  end
  for key, value in pairs(more or {}) do options[key] = value end
  return options
end

local function passes_of(layout)
  local passes, mesh = {}, layout.mesh
  if mesh.pp.size > 1 then passes[1] = pipe.split{axis = mesh.pp} end
  local shard = {stage = layout.stage, axis = mesh:join{"dp", "ep"}}
  if layout.stage > 0 then shard.node_shared = layout.shared and not layout.moved or false end
  passes[#passes + 1] = zero.shard(shard)
  if layout.moved then
    passes[#passes + 1] = offload.move{optimizer = "nvme", parameters = layout.stage == 3 and "nvme" or nil,
                                       folder = {layouts.folder}, slice = 4096}
  end
  return passes
end

--- Returns the trainer of moe.gpt(options) in a layout. prepare(model): is called before the program is made.
function layouts.trainer(options, layout, prepare)
  local given, mesh = {}, layout.mesh
  for key, value in pairs(options) do given[key] = value end
  if mesh and mesh.tp.size > 1 then given.tensor = mesh.tp end
  local model = moe.gpt(given, given.moe and mesh and {axis = mesh.ep} or nil)
  if prepare then prepare(model) end
  local program = zt.program(model, {precision = layout.precision, mesh = mesh, micro_batches = mesh and mesh.pp.size or 1})
  for _, pass in ipairs(mesh and passes_of(layout) or {}) do program = program:apply(pass) end
  return zt.trainer(program, {optimizer = layout.trains and optim.adamw{lr = 1e-2} or nil, separate = true})
end

--- Gives all tensors of a trainer random values, the same on all ranks.
function layouts.randomise(trainer, seed)
  local generator = zt.generator(seed)
  for _, tensor in ipairs(trainer:tensors()) do
    trainer:set_parameter(tensor.name, zt.randn(tensor.shape, {generator = generator, dtype = "float64"}))
  end
end

--- Returns the names of tensors that have other bits than a transfer gives them; nil if there are none. Collective.
function layouts.wrong(from, to, layout)
  local master = layout.precision == "fp64" and "float64" or "float32"
  for _, tensor in ipairs(to:tensors()) do
    local given, exact = from:describe_parameter(tensor.name), from:master(tensor.name)
    local wanted = given.dtype == tensor.dtype and from:state()[tensor.name] or exact:to(tensor.dtype)
    if not to:state()[tensor.name]:equal(wanted) then return tensor.name end
    local has_master = layout.trains and tensor.is_parameter
    if has_master and not to:master(tensor.name):equal(exact:to(master)) then return tensor.name .. " (master)" end
  end
end

layouts.meshes = meshes

--- Removes the folder and ends the process with the code of the suite.
function layouts.run(suites)
  local lu = require "luaunit"
  local code = lu.LuaUnit.new():runSuiteByInstances(suites)
  meshes[1]:world():barrier()
  if rank == 0 then os.execute("rm -rf '" .. layouts.folder .. "'") end
  os.exit(code)
end

return layouts
