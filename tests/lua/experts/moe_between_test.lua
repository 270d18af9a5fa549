-- Tests layers of a script between those of a mixture of experts: what does not fit is refused on every rank alike. Runs on one
-- rank and on two.
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn, optim = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim"
local zero = require "zt.zero"

local HIDDEN, VOCAB, SEQ, EXPERTS = 16, 29, 8, 4
local ranks, rank = zt.world.size, zt.world.rank
local mesh = comm.mesh{dp = 1, ep = ranks}

local function exchange(dispatcher, options)
  local all = {experts = EXPERTS, hidden = HIDDEN, axis = mesh.ep, dispatcher = dispatcher}
  for name, value in pairs(options or {}) do all[name] = value end
  return all
end

local function model_of(layers)
  return nn.gpt{layers = 1, hidden = HIDDEN, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, mlp = function() return layers end}
end

local function loss_of(layers)
  local program = zt.program(model_of(layers)):apply(zero.shard{axis = mesh:join{"dp", "ep"}})
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
  local all = (zt.arange(4 * SEQ) * 3):remainder(VOCAB):view{4, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 4 / ranks, 4 / ranks):contiguous()
  return trainer:step{tokens = tokens, labels = tokens}.loss
end

-- Returns the layers of a mixture with a layer before the one of the name `before` that changes `value` by `change`.
local function mixture(dispatcher, before, value, change)
  local layers = {}
  for _, named in ipairs{
    {"router", moe.router{hidden = HIDDEN, experts = EXPERTS}}, {"dispatch", moe.dispatch(exchange(dispatcher))},
    {"experts", nn.grouped_mlp{groups = EXPERTS, hidden = HIDDEN, ffn = 8, axis = "ep", parts = ranks}},
    {"combine", moe.combine(exchange(dispatcher))},
  } do
    if named[1] == before then
      local output = value:find "weights" and value or {name = value, differentiable = value == "rows"}
      layers[#layers + 1] = {"changed", nn.layer{
        io = {inputs = {value}, outputs = {output}}, forward = function(_, given) return change(given) end,
      }}
    end
    layers[#layers + 1] = named
  end
  return layers
end

local function each(check)
  for _, dispatcher in ipairs{"all_to_all", "all_gather"} do check(dispatcher) end
end

local TestBetween = {}

function TestBetween:test_what_changes_no_sizes_is_accepted()
  each(function(dispatcher)
    local same = loss_of(mixture(dispatcher, "combine", "rows", function(rows) return rows * 1 end))
    lu.assertEquals(loss_of(mixture(dispatcher)), same)
    lu.assertNotEquals(loss_of(mixture(dispatcher, "combine", "route_weights", function(weights) return weights * 3 end)), same)
  end)
end

local ROWS = {
  function(rows) return rows:narrow(0, 0, rows:size(0) - 1) end,
  function(rows) return zt.cat({rows, rows}, 0) end,
  function(rows) return rows:narrow(0, 0, 0) end,
  function(rows) return zt.cat({rows, rows}, 1) end,
  function(rows) return rows:narrow(1, 0, 8) end,
  function(rows) return rows:flatten() end,
  -- On the last rank only: the others must not wait for it.
  function(rows) return rank == ranks - 1 and rows:narrow(0, 0, rows:size(0) - 1) or rows end,
}

function TestBetween:test_rows_of_another_size_are_refused()
  each(function(dispatcher)
    for _, change in ipairs(ROWS) do
      lu.assertErrorMsgContains("it needs `rows` of [", loss_of, mixture(dispatcher, "combine", "rows", change))
    end
  end)
end

local WEIGHTS = {
  function(weights) return weights:narrow(2, 0, 1) end,
  function(weights) return zt.cat({weights, weights}, 2) end,
  function(weights) return weights:narrow(1, 0, 1) end,
  function(weights) return weights:sum(-1) end,
  function(weights) return rank == ranks - 1 and weights:narrow(0, 0, 1) or weights end,
}

function TestBetween:test_weights_of_another_size_are_refused()
  each(function(dispatcher)
    for i, change in ipairs(WEIGHTS) do
      lu.assertErrorMsgContains("it needs `route_weights` of [..., 2] for ", loss_of,
                                mixture(dispatcher, "dispatch", "route_weights", change), i)
    end
  end)
end

function TestBetween:test_experts_that_do_not_exist_are_refused()
  each(function(dispatcher)
    for _, change in ipairs{
      function(experts) return experts + 1 end, function(experts) return experts - 9 end,
      function(experts) return rank == ranks - 1 and experts + EXPERTS or experts end,
    } do
      lu.assertErrorMsgContains("but there are 4 (the first is 0)", loss_of,
                                mixture(dispatcher, "dispatch", "route_experts", change))
    end
  end)
end

function TestBetween:test_only_a_dispatch_makes_places_and_traffic()
  each(function(dispatcher)
    for _, value in ipairs{"places", "traffic"} do
      lu.assertErrorMsgContains("it needs the outputs `places` and `traffic` of one moe.dispatch", model_of,
                                mixture(dispatcher, "experts", value, function(given) return given end))
    end
  end)
end

-- Meshes may have axes of one name and of other sizes.
function TestBetween:test_axes_of_other_sizes_are_refused()
  if ranks == 1 then return end
  local other = comm.mesh{dp = ranks, ep = 1}
  each(function(dispatcher)
    local layers = mixture(dispatcher)
    layers[4] = {"combine", moe.combine(exchange(dispatcher, {axis = other.ep}))}
    lu.assertErrorMsgContains("it has axis = 'ep' of 1 rank, and the dispatch that sent the tokens has 'ep' of 2 ranks",
                              model_of, layers)
  end)
end

function TestBetween:test_an_axis_of_another_mesh_is_refused()
  if ranks == 1 then return end
  local layers = mixture "all_to_all"
  layers[3] = {"experts", nn.layer{io = {inputs = {"rows"}, outputs = {"rows"}}, forward = function(_, rows) return rows * 2 end}}
  local other = comm.mesh{dp = ranks, ep = 1}
  local trainer = zt.trainer(zt.program(model_of(layers)):apply(zero.shard{axis = other:join{"dp", "ep"}}), {
    optimizer = optim.sgd{lr = 0.1},
  })
  local tokens = zt.zeros({1, SEQ}, {dtype = "int64"})
  lu.assertErrorMsgContains("it was made for 2 ranks along axis 'ep', and the program's mesh has 1", trainer.step, trainer,
                            {tokens = tokens, labels = tokens})
end

local BRANCHES = {
  function(h) return h:narrow(-1, 0, 8) end,
  function(h) return h:narrow(0, 0, 1) end,
  function(h) return h:to "float64" end,
}

function TestBetween:test_a_branch_of_another_shape_is_refused()
  each(function(dispatcher)
    for _, branch in ipairs{"shared", "residual"} do
      for _, change in ipairs(BRANCHES) do
        local layer = nn.layer{params = {w = zt.ones{HIDDEN}}, forward = function(layer, h) return change(h * layer.w) end}
        local layers = moe.layers{
          experts = EXPERTS, hidden = HIDDEN, ffn = 8, axis = mesh.ep, dispatcher = dispatcher, [branch] = {layer = layer},
        }
        lu.assertErrorMsgContains("a branch beside experts returns one value like its own", loss_of, layers)
      end
    end
  end)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestBetween", TestBetween}})
