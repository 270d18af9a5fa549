-- Tests the options of zt.transfer, adapters, engines that take parameters, and errors. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, infer, nn = require "zt.ckpt", require "zt.comm", require "zt.infer", require "zt.nn"
local optim, zero = require "zt.optim", require "zt.zero"
local cases = require "infer.engine_cases"
local layouts = require "transfer.layouts"

local mesh = layouts.meshes[1]
local LORA = {rank = 3, alpha = 5, targets = {"q", "v", "out", "up_proj", "down", "head"}}

-- Returns a trainer of a small model: sharded over all ranks, or one on each rank.
local function sharded(seed, more, precision)
  return layouts.trainer(layouts.options(seed, false, more), {precision = precision or "bf16", mesh = mesh, stage = 3,
                                                              trains = true})
end
local function own(seed, more, precision)
  return layouts.trainer(layouts.options(seed, false, more), {precision = precision or "bf16"})
end

local TestAdapters = {}

function TestAdapters:test_are_merged_as_by_merge_lora()
  for _, precision in ipairs{"bf16", "fp32", "fp64"} do
    local from = sharded(1, {lora = LORA}, precision)
    layouts.randomise(from, 7)
    local reference = sharded(2, {lora = LORA}, precision)
    zt.transfer(from, reference, {adapters = "keep"})
    ckpt.merge_lora(reference)
    for _, cut in ipairs(layouts.meshes) do
      if cut.ep.size == 1 then
        local to = layouts.trainer(layouts.options(3, false), {precision = precision, mesh = cut, stage = 0})
        zt.transfer(from, to, {adapters = "merge"})
        for _, tensor in ipairs(to:tensors()) do
          lu.assertTrue(to:parameter(tensor.name):equal(reference:parameter(tensor.name)), precision .. " " .. tensor.name)
        end
      end
    end
  end
end

function TestAdapters:test_of_a_packed_base_are_merged()
  local options = layouts.options(1, false, {hidden = 64, ffn = 128, lora = {rank = 2}})
  local function pack(model) model:pack{format = "int8", group = 32} end
  local from = layouts.trainer(options, {precision = "fp32", mesh = mesh, stage = 2, trains = true}, pack)
  layouts.randomise(from, 3)
  local to = own(2, {hidden = 64, ffn = 128}, "fp32")
  zt.transfer(from, to, {adapters = "merge"})
  local name = "blocks.0.attention.qkv.weight"
  local sum = from:parameter(name)
  for _, part in ipairs{{"q", 0}, {"v", sum:size(0) - 32}} do
    local a, b = from:parameter("blocks.0.attention.qkv.lora." .. part[1] .. ".a"),
      from:parameter("blocks.0.attention.qkv.lora." .. part[1] .. ".b")
    sum:narrow(0, part[2], b:size(0)):addmm_(b, a, {alpha = 16})
  end
  lu.assertTrue(to:parameter(name):equal(sum))
end

function TestAdapters:test_mistakes()
  local with, without = sharded(1, {lora = {rank = 2}}), own(1)
  lu.assertErrorMsgContains("only the trainer to read from has 'blocks.0.attention.qkv.lora.q.a' [2, 24]", zt.transfer, with,
                            without)
  lu.assertErrorMsgContains("has no adapters", zt.transfer, without, with, {adapters = "merge"})
  lu.assertErrorMsgContains("is of an adapter that is to be merged, and the trainer to set has it, too", zt.transfer, with,
                            own(1, {lora = {rank = 2}}), {adapters = "merge"})
  lu.assertErrorMsgContains("must be one of 'keep', 'merge'", zt.transfer, with, without, {adapters = "add"})
end

local TestOptions = {}

function TestOptions:test_only()
  local from, to = sharded(1), own(2)
  local before = to:parameter "head.weight"
  local report = zt.transfer(from, to, {only = {"norm", "^blocks\\.0\\.mlp"}})
  lu.assertTrue(report.parameters > 4 and report.parameters < #to:tensors())
  for _, tensor in ipairs(to:tensors()) do
    local has_moved = tensor.name:find "norm" or tensor.name:find "^blocks%.0%.mlp"
    if has_moved then lu.assertTrue(to:parameter(tensor.name):equal(from:parameter(tensor.name)), tensor.name) end
  end
  lu.assertTrue(to:parameter "head.weight":equal(before))
  lu.assertErrorMsgContains("a match of 'nothing' (only)", zt.transfer, from, to, {only = {"norm", "nothing"}})
  lu.assertErrorMsgContains("zt.transfer.only", zt.transfer, from, to, {only = {"("}})
  lu.assertErrorMsgContains("unknown option 'dtype'", zt.transfer, from, to, {dtype = "bf16"})
  lu.assertErrorMsgContains("the second argument must be a Trainer", zt.transfer, from)
end

function TestOptions:test_sources()
  local from, to = sharded(1, {tied = true}), own(2)
  lu.assertErrorMsgContains("the head of the trainer to set has a matrix of its own, and that of the other one is the weight of "
    .. "its embedding (tied)", zt.transfer, from, to)
  zt.transfer(from, to, {sources = {["head.weight"] = "embedding.weight"}})
  lu.assertTrue(to:parameter "head.weight":equal(from:parameter "embedding.weight"))
  lu.assertErrorMsgContains("the head of the trainer to read from has a matrix of its own", zt.transfer, to, from)
end

-- What is sent is what ranks lack, once.
function TestOptions:test_report()
  local from, to = sharded(1), own(2)
  local bytes = 0
  for _, tensor in ipairs(to:tensors()) do bytes = bytes + 2 * to:parameter(tensor.name):numel() end
  local report = zt.transfer(from, to)
  local sums = zt.tensor({report.sent_bytes, report.local_bytes}, {dtype = "float64"})
  if zt.world.size > 1 then mesh:world():all_reduce(sums) end
  lu.assertEquals(sums[1]:item(), bytes)
  lu.assertEquals(sums[0]:item(), bytes * (zt.world.size - 1))
  lu.assertTrue(report.seconds > 0)
end

local TestMistakes = {}

-- All differences are in one text, the same on all ranks, and nothing has moved.
function TestMistakes:test_all_differences_are_listed()
  local from = sharded(1)
  local to = own(2, {hidden = 48, layers = 5, bias = true})
  local before = to:parameter "embedding.weight"
  local is_right, message = pcall(zt.transfer, from, to)
  lu.assertFalse(is_right)
  for _, part in ipairs{"zt.transfer: the trainers do not fit, so nothing has moved",
                        "'embedding.weight' is [37, 24] in the trainer to read from and [37, 48] in the trainer to set",
                        "'head.weight' is [37, 24]", "only the trainer to set has 'blocks.4.mlp.up.weight'",
                        "only the trainer to set has 'blocks.0.mlp.down.bias'"} do
    lu.assertStrContains(message, part)
  end
  lu.assertTrue(to:parameter "embedding.weight":equal(before))
  local all = zt.world.size > 1 and mesh:world():gather_values(message) or {message}
  for _, text in ipairs(all) do lu.assertEquals(text, message) end
end

-- Models may compute different things of parameters with equal shapes.
function TestMistakes:test_other_functions_of_equal_shapes()
  local from = sharded(1)
  for _, case in ipairs{{"heads", 2, {kv_heads = 1}}, {"rope_base", 500}, {"eps", 0.125}, {"window", 2}, {"causal", false}} do
    local to = own(2, cases.with(case[3] or {}, {[case[1]] = case[2]}))
    local before = to:parameter "head.weight"
    local text = "the model's option " .. case[1] .. " is "
    lu.assertErrorMsgContains(text, zt.transfer, from, to)
    lu.assertErrorMsgContains(("and %s in the trainer to set"):format(tostring(case[2])), zt.transfer, from, to)
    lu.assertTrue(to:parameter "head.weight":equal(before))
    zt.transfer(from, to, {only = {"head"}})
  end
  zt.transfer(from, own(2, {seq = 48, dropout = 0.1, std = 0.5}))
  zt.transfer(sharded(1, {lora = {rank = 2}}), own(2, {lora = {rank = 2, alpha = 32, dropout = 0.5, init = "gaussian"}}))
  local one, other = sharded(1, {lora = {rank = 2, alpha = 4}}), own(2, {lora = {rank = 2, alpha = 8}})
  lu.assertErrorMsgContains("the scale of the adapter 'blocks.0.attention.qkv.lora.q', by lora.alpha, is 2 in the trainer to "
    .. "read from and 4 in the trainer to set", zt.transfer, one, other)
  zt.transfer(one, own(3), {adapters = "merge"})
end

function TestMistakes:test_names_that_no_trainer_has()
  local from, to = sharded(1), own(2)
  lu.assertErrorMsgContains("the trainer to read from has no 'nothing' (sources)", zt.transfer, from, to,
                            {sources = {["head.weight"] = "nothing"}})
  lu.assertErrorMsgContains("the trainer to set has no 'nothing' (sources)", zt.transfer, from, to,
                            {sources = {nothing = "head.weight"}})
  lu.assertErrorMsgContains("zt.transfer.only is an empty list", zt.transfer, from, to, {only = {}})
end

function TestMistakes:test_what_cannot_be_read_or_set()
  local from, to = sharded(1), sharded(2)
  lu.assertErrorMsgContains("both are the same trainer", zt.transfer, from, from)
  from:evict({"parameters"}, {to = "nvme", folder = layouts.folder})
  lu.assertErrorMsgContains("zt.transfer from this trainer needs parameters, which trainer:evict has", zt.transfer, from, to)
  lu.assertErrorMsgContains("zt.transfer to this trainer needs parameters", zt.transfer, to, from)
  from:fetch()
  from:evict({"optimizer"}, {to = "nvme", folder = layouts.folder})
  lu.assertErrorMsgContains("needs the optimizer's state", zt.transfer, from, to)
  lu.assertErrorMsgContains("needs the optimizer's state", zt.transfer, to, from)
  zt.transfer(from, own(3)) -- what layers see is there
  from:fetch()
  zt.transfer(from, to)
  lu.assertNil(layouts.wrong(from, to, {precision = "bf16", trains = true}))
end

function TestMistakes:test_buffers_of_other_kinds()
  local options = layouts.options(1, true)
  local from = layouts.trainer(options, {precision = "fp32"})
  local without = layouts.options(1, true)
  without.moe = cases.with(without.moe, {router = {}})
  lu.assertErrorMsgContains("only the trainer to read from has 'blocks.1.router.bias' [12]", zt.transfer, from,
                            layouts.trainer(without, {precision = "fp32"}))
end

-- Models of their own on all ranks become parts of one only if they are equal.
function TestMistakes:test_models_of_ranks_that_differ()
  if zt.world.size == 1 then return end
  local from, to = own(1), sharded(2)
  zt.transfer(from, to)
  local values = from:parameter "blocks.2.norm1.weight" + zt.world.rank
  from:set_parameter("blocks.2.norm1.weight", values)
  lu.assertErrorMsgContains("have different values of 'blocks.2.norm1.weight'", zt.transfer, from, to)
end

function TestMistakes:test_ranks_that_move_others()
  if zt.world.size == 1 then return end
  local from, to = sharded(1), own(2)
  lu.assertErrorMsgContains("all ranks make the same calls", zt.transfer, from, to,
                            {only = {zt.world.rank == 0 and "norm" or "mlp"}})
end

local TestEngines = {}

local requests = cases.requests(5)
local GPT = cases.options "llama"

local function actor_of(more)
  local program = zt.program(nn.gpt(cases.with(GPT, more or {})), {precision = "bf16"})
  return zt.trainer(program:apply(zero.shard{axis = mesh:join{"dp", "ep"}, stage = 3}),
                    {optimizer = optim.adamw{lr = 0.02}})
end

local function step(actor)
  local tokens = zt.tensor({cases.prompt(20, zt.world.rank)}, {dtype = "int64"})
  actor:step{tokens = tokens, labels = tokens}
end

-- After an update an engine answers as one that is made anew.
function TestEngines:test_updates()
  local other = comm.mesh{dp = 1, tp = -1, order = {"dp", "tp"}}
  local kinds = {
    {make = function(actor) return infer.engine{trainer = actor, mesh = other, tensor = other.tp} end},
    {make = function(actor) return infer.engine{trainer = actor, dtype = "fp32"} end},
    {make = function(actor) return infer.engine{trainer = actor, dtype = "fp32", weights = {format = "int8", group = 32}} end,
     of = {hidden = 64, head_dim = 16, ffn = 128}},
    {make = function(actor) return infer.engine{trainer = actor, dtype = "fp32"} end, of = {lora = {rank = 2, alpha = 64}}},
    {make = function(actor) return infer.engine{trainer = actor, mesh = other, tensor = other.tp} end,
     of = {lora = {rank = 2, alpha = 64}}},
  }
  for place, kind in ipairs(kinds) do
    local actor = actor_of(kind.of)
    local engine = kind.make(actor)
    local before = cases.texts(engine:generate(requests))
    for _ = 1, 2 do step(actor) end
    engine:update(actor)
    local answers = cases.texts(engine:generate(requests))
    lu.assertEquals(answers, cases.texts(kind.make(actor):generate(requests)), place)
    lu.assertNotEquals(answers, before, place)
  end
end

layouts.run{{"TestAdapters", TestAdapters}, {"TestOptions", TestOptions}, {"TestMistakes", TestMistakes},
            {"TestEngines", TestEngines}}
