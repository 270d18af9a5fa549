-- Tests zero.gathered and trainer:state(). Also runs on two ranks.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local rank, ranks = zt.world.rank, zt.world.size

local function make(stage, node_shared, hidden)
  local mesh = comm.mesh{dp = -1}
  local model = nn.gpt{layers = 1, hidden = hidden or 8, heads = 2, vocab = 11, seq = 4, seed = 3}
  local program = zt.program(model):apply(zero.shard{stage = stage, axis = mesh.dp, node_shared = node_shared})
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
  local tokens = zt.arange(8):to("int64"):view({2, 4}):add(rank)
  trainer:step{tokens = tokens, labels = tokens}
  return trainer, model
end

-- Runs `test` at every stage, with one copy of the parameters per rank and with zero.shard's default.
local function for_all(test)
  for stage = 0, 3 do
    test(make(stage, false))
    test(make(stage, nil))
  end
end

local TestGathered = {}

function TestGathered:test_whole_tensors_to_look_at()
  for_all(function(trainer)
    local shape, norm = zero.gathered(trainer, "embedding.weight", function(tensors)
      local one = tensors["embedding.weight"]
      lu.assertNil(one.gradient)
      one.value:zero_() -- changes only a copy
      return one.value:size(), one.value:norm():item()
    end)
    lu.assertEquals({shape, norm}, {{11, 8}, 0})
    lu.assertTrue(trainer:parameter("embedding.weight"):norm():item() > 0)
  end)
end

function TestGathered:test_one_ranks_changes_are_taken_by_all()
  for_all(function(trainer)
    local source = ranks - 1
    zero.gathered(trainer, {"embedding.weight", "head.norm.weight"}, function(tensors)
      lu.assertEquals(tensors["embedding.weight"].gradient:size(), {11, 8})
      lu.assertTrue(tensors["head.norm.weight"].state.exp_avg:norm():item() > 0)
      tensors["embedding.weight"].value:fill_(rank + 1)
      tensors["head.norm.weight"].state.exp_avg:fill_(rank + 5)
    end, {write_rank = source, gradients = true, state = true})
    lu.assertEquals(trainer:parameter("embedding.weight"):sum():item(), 88 * (source + 1))
    lu.assertEquals(trainer:optimizer_state("head.norm.weight").exp_avg:sum():item(), 8 * (source + 5))
  end)
end

function TestGathered:test_mistakes()
  local trainer = make(1)
  lu.assertErrorMsgContains("did you mean 'head.norm.weight'", zero.gathered, trainer, "head.norm.wight", function() end)
  lu.assertErrorMsgContains("zero.gathered: fn must be a function, got nil", zero.gathered, trainer, {"x"})
  lu.assertErrorMsgContains("zero.gathered.names must be a list, got nil", zero.gathered, trainer)
  lu.assertErrorMsgContains("zero.gathered.names[1] must be a string, got an integer", zero.gathered, trainer, {3}, print)
  lu.assertErrorMsgContains("zero.gathered: the first argument must be a Trainer, from zt.trainer, got a Mesh", zero.gathered,
                            trainer.mesh, {"x"}, print)
  local name = "head.norm.weight"
  local function assigned(fn) return function() zero.gathered(trainer, name, fn, {write_rank = 0}) end end
  lu.assertErrorMsgContains("after the function, tensors['head.norm.weight'] is a tensor: change that tensor in place, or assign "
    .. "another one to tensors['head.norm.weight'].value", assigned(function(t) t[name] = zt.ones(8) end))
  lu.assertErrorMsgContains("tensors['head.norm.weight'].value is an integer", assigned(function(t) t[name].value = 3 end))
  lu.assertErrorMsgContains("tensors['head.norm.weight'] is a tensor", assigned(function(t) -- on one rank only
    if rank == ranks - 1 then t[name] = zt.ones(8) end
  end))
  zero.gathered(trainer, name, function(t) t[name].value = zt.ones(8) end, {write_rank = 0})
  lu.assertEquals(trainer:parameter(name):sum():item(), 8)
  local _, message = pcall(function() zero.gathered(trainer, {"x"}) end) -- its file is linked into the library
  lu.assertStrMatches(message, ".*gathered_test%.lua:%d+: zero%.gathered: fn.*")
  lu.assertErrorMsgContains("zero.gathered.write_rank must be a rank from 0 to", zero.gathered, trainer, "head.norm.weight",
                            function() end, {write_rank = 99})
end

local TestState = {}

function TestState:test_parameters_by_name_when_they_are_asked_for()
  for_all(function(trainer, model)
    local state, names = trainer:state(), {}
    lu.assertTrue(state["head.norm.weight"]:equal(trainer:parameter("head.norm.weight")))
    for name, values in state:each() do
      names[#names + 1] = name
      lu.assertTrue(values:equal(trainer:parameter(name)))
    end
    lu.assertEquals(names, trainer:parameters())
    lu.assertErrorMsgContains("no parameter 'nothing'", function() return state.nothing end)
  end)
end

-- A common mistake: a call on one rank only that all ranks must make. Both learn what the other does.
function TestGathered:test_other_calls_on_other_ranks_are_refused()
  if ranks == 1 then return end
  local trainer = make(3, false, 64) -- the parameter is spread over the ranks
  local axis = trainer.mesh:world()
  local calls = {
    function() return trainer:parameter "embedding.weight" end, function() return axis:gather_values "a value" end,
    function() return trainer:set_parameter("embedding.weight", zt.zeros{11, 64}) end,
  }
  local texts = {"reads a tensor", "gathers values", "sets a tensor"}
  for first = 1, #calls do
    for second = 1, #calls do
      if first ~= second then
        local is_done, message = pcall(calls[rank == 0 and first or second])
        lu.assertFalse(is_done)
        local form = "%s, and rank 1 %s: all ranks have to make the same calls"
        lu.assertStrContains(message, form:format(texts[first], texts[second]))
      end
    end
  end
  lu.assertEquals(#axis:gather_values(rank), ranks)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGathered", TestGathered}, {"TestState", TestState}})
