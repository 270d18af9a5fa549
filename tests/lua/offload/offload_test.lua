-- Tests offload.move in scripts: data in files train with the bits of data in memory, are saved and loaded, and are reported.
local check = require "zt.check"
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, nn, offload, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.offload",
  require "zt.optim", require "zt.zero"

local mesh = comm.mesh{dp = -1}
local rank, ranks = zt.world.rank, zt.world.size
local SEQ, VOCAB = 12, 41

local function merged(...)
  local all = {}
  for _, list in ipairs{...} do
    for key, value in pairs(list) do all[key] = value end
  end
  return all
end

-- A folder that is there and is the same on all ranks.
local folder = mesh:world():gather_values(os.tmpname())[1]
if rank == 0 then
  os.remove(folder)
  zt.mkdir_p(folder)
end
mesh:world():barrier()

local function program_of(options)
  local model = nn.gpt{layers = 2, hidden = 48, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, tied = options.tied}
  if options.frozen then model:freeze(options.frozen) end
  local shard = {axis = mesh.dp, stage = options.stage, reduce_every = options.every}
  if options.stage == 3 then shard.node_shared = false end
  return zt.program(model, {precision = options.precision, micro_batches = 2}):apply(zero.shard(shard))
end

local MOVES = {optimizer = "nvme", gradients = "nvme", folder = {folder}, slice = 4096}

local function moved(options, move)
  local parameters = options.stage == 3 and "nvme" or nil
  return program_of(options):apply(offload.move(merged(MOVES, {parameters = parameters}, move or {})))
end

local function trainer_of(program, options)
  return zt.trainer(program, {optimizer = options.optimizer or optim.adamw{lr = 1e-2, weight_decay = 0.1}, clip = 0.5})
end

local function batch(step)
  local all = (zt.arange(4 * SEQ) * 5 + step):remainder(VOCAB):view{4, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 4 / ranks, 4 / ranks):contiguous()
  return {tokens = tokens, labels = tokens}
end

local function assert_same(a, b, why)
  for _, name in ipairs(a:parameters()) do
    lu.assertTrue(a:parameter(name):equal(b:parameter(name)), name .. why)
    lu.assertTrue(a:master(name):equal(b:master(name)), "master " .. name .. why)
    local left, right = a:optimizer_state(name), b:optimizer_state(name)
    for _, key in ipairs(check.sorted_keys(left)) do lu.assertTrue(left[key]:equal(right[key]), key .. " of " .. name .. why) end
  end
end

local TestOffload = {}

function TestOffload:test_bits()
  local cases = {
    {stage = 0, frozen = "^blocks\\.1\\.attention"}, {stage = 1, precision = "bf16"}, {stage = 2, tied = true},
    {stage = 3, precision = "bf16", every = "micro_batch"}, {stage = 3, optimizer = optim.sgd{lr = 0.1}},
  }
  for i, options in ipairs(cases) do
    local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
    for step = 1, 2 do
      local x, y = a:step(batch(step)), b:step(batch(step))
      lu.assertEquals({y.loss, y.grad_norm}, {x.loss, x.grad_norm})
    end
    lu.assertEquals(b:evaluate(batch(5)).loss, a:evaluate(batch(5)).loss)
    for _, parameter in ipairs(a.model:parameters()) do
      local name = parameter.name
      if parameter.trainable then lu.assertTrue(a:gradient(name):equal(b:gradient(name)), "gradient of " .. name) end
    end
    assert_same(a, b, " of case " .. i)
  end
end

function TestOffload:test_setters()
  local options = {stage = 3, precision = "bf16"}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  a:step(batch(1))
  for _, name in ipairs(a:parameters()) do
    b:set_parameter(name, a:master(name))
    local state = a:optimizer_state(name)
    for _, key in ipairs(check.sorted_keys(state)) do b:set_optimizer_state(name, key, state[key]) end
  end
  assert_same(a, b, " after it was set")
end

-- What is saved with the pass loads without it, and the other way round.
function TestOffload:test_checkpoints()
  local options = {stage = 3, precision = "bf16"}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  for step = 1, 2 do
    a:step(batch(step))
    b:step(batch(step))
  end
  ckpt.save(folder .. "/plain", {trainer = a}, {step = 2, async = false})
  ckpt.save(folder .. "/moved", {trainer = b}, {step = 2})
  b:step(batch(3)) -- the save is complete
  for _, name in ipairs{"plain", "moved"} do
    local c, d = trainer_of(moved(options), options), trainer_of(program_of({stage = 1, precision = "bf16"}), options)
    ckpt.load(folder .. "/" .. name, {trainer = c})
    assert_same(a, c, " loaded by " .. name)
    ckpt.load(folder .. "/" .. name, {trainer = d})
    assert_same(a, d, " loaded at another stage from " .. name)
    lu.assertEquals(c:step(batch(3)).loss, d:step(batch(3)).loss)
  end
end

function TestOffload:test_by_hand()
  local options = {stage = 2}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  local half = 4 / ranks / 2
  local function part(step, index)
    local tokens = batch(step).tokens:narrow(0, index * half, half):contiguous()
    return {tokens = tokens, labels = tokens}
  end
  for step = 1, 2 do
    for _, trainer in ipairs{a, b} do
      for index = 0, 1 do
        trainer:forward(part(step, index))
        trainer:backward()
      end
      trainer:finish_step()
    end
  end
  assert_same(a, b, " by hand")
end

function TestOffload:test_a_step_that_fails_leaves_all_at_home()
  local options = {stage = 3}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
  a:step(batch(1))
  b:step(batch(1))
  local wrong = batch(2)
  wrong.tokens = wrong.tokens + VOCAB
  for _ = 1, 2 do lu.assertErrorMsgContains("embedding", b.step, b, wrong) end
  a:step(batch(2))
  b:step(batch(2))
  assert_same(a, b, " after an error")
end

-- One rank fails in its forward: the others wait for what it sends, and all of them end the step.
function TestOffload:test_a_step_that_fails_on_one_rank()
  for stage = 2, 3 do
    local options = {stage = stage, every = "micro_batch"}
    local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), options)
    a:step(batch(1))
    b:step(batch(1))
    local wrong = batch(2)
    if rank == ranks - 1 then wrong.tokens = wrong.tokens + VOCAB end
    for _ = 1, 2 do
      lu.assertErrorMsgContains("embedding", b.step, b, wrong)
      lu.assertErrorMsgContains("embedding", b.evaluate, b, wrong)
    end
    a:step(batch(2))
    b:step(batch(2))
    assert_same(a, b, " after an error of one rank")
  end
end

-- States whose names are those of tensors of units.
function TestOffload:test_names_of_states()
  local function optimizer()
    return zt.optimizer{name = "own", lr = 0.1, states = {master = "like", shard = "like"}, step = function(info, p, g, state)
      state.master:mul_(0.9):add_(g)
      state.shard:add_(1)
      p:sub_(state.master * info.lr)
    end}
  end
  local options = {stage = 1, precision = "bf16", optimizer = optimizer()}
  local a, b = trainer_of(program_of(options), options), trainer_of(moved(options), {optimizer = optimizer()})
  a:step(batch(1))
  b:step(batch(1))
  assert_same(a, b, " with such names")
  lu.assertEquals(b:optimizer_state("head.norm.weight").shard[0]:item(), 1)
end

function TestOffload:test_input_gradients()
  local function trainer(is_moved)
    local read = nn.layer{io = {inputs = {}, outputs = {"h"}}, forward = function(_, ctx) return ctx:batch "x" end}
    local loss = zt.loss(function(out, ctx) return (out.h - ctx:batch "y"):pow(2):mean(1):sum() end,
                         {name = "squares", per = "sample", inputs = {"h"}})
    local layer = nn.sequential{seed = 4, {"read", read}, {"up", nn.linear{["in"] = 8, out = 600}},
                                {"down", nn.linear{["in"] = 600, out = 3}}, {"loss", loss}}
    local program = zt.program(layer, {inputs_need_grad = {"x"}}):apply(zero.shard{axis = mesh.dp, stage = 2})
    if is_moved then program = program:apply(offload.move(MOVES)) end
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}})
  end
  local draw = zt.generator(7 + rank)
  local samples = {x = zt.randn({4, 8}, {generator = draw}), y = zt.randn({4, 3}, {generator = draw})}
  local a, b = trainer(false), trainer(true)
  for _ = 1, 2 do
    lu.assertEquals(b:step(samples).loss, a:step(samples).loss)
    lu.assertTrue(a:input_gradients(samples).x:equal(b:input_gradients(samples).x))
    lu.assertTrue(a:gradient("up.weight"):equal(b:gradient("up.weight")))
  end
  assert_same(a, b, " beside input_gradients")
end

function TestOffload:test_overflow_that_skips()
  local options = {stage = 2, precision = "fp16"}
  local function trainer(program)
    return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}, fp16 = {initial_scale_power = 24}})
  end
  local a, b = trainer(program_of(options)), trainer(moved(options))
  local skipped = 0
  for step = 1, 8 do
    local x, y = a:step(batch(step)), b:step(batch(step))
    lu.assertEquals(y.skipped, x.skipped)
    skipped = skipped + (x.skipped and 1 or 0)
  end
  lu.assertTrue(skipped > 0 and skipped < 8, "some steps are skipped: " .. skipped)
  assert_same(a, b, " after an overflow")
end

function TestOffload:test_memory()
  local options = {stage = 1}
  local trainer = trainer_of(moved(options, {ratio = 0.5}), options)
  trainer:step(batch(1))
  local memory = trainer:memory()
  for _, kind in ipairs{"parameters", "gradients", "optimizer", "staging", "files"} do
    lu.assertEquals(memory[kind].measured, memory[kind].predicted, kind)
    lu.assertTrue(memory[kind].predicted > 0, kind)
  end
  local sum = 0
  for kind, line in pairs(memory) do
    if kind ~= "total" and kind ~= "files" then sum = sum + line.predicted end
  end
  lu.assertEquals(memory.total.predicted, sum)
  lu.assertStrContains(trainer:report(), "memory    files")
  lu.assertStrContains(zt.memory_text(trainer), "\ntotal .*\nfiles ", true)
end

function TestOffload:test_text()
  local options = {stage = 1, precision = "bf16"}
  local program = moved(options)
  local text = program:text()
  lu.assertStrContains(text, "state_home=file")
  lu.assertStrContains(text, "FETCH 2 home=file master=true part=0 parts=")
  local again = trainer_of(moved(options):with_actions(text), options)
  local whole = trainer_of(program, options)
  lu.assertEquals(again:step(batch(1)).loss, whole:step(batch(1)).loss)
  assert_same(again, whole, " from text")
end

-- The simulation knows what is moved, and how long the disk took.
function TestOffload:test_simulation()
  local options = {stage = 1}
  local trainer = trainer_of(moved(options), options)
  lu.assertErrorMsgContains("have no file_", trainer.simulate, trainer, batch(1), "a100")
  local costs = trainer:costs(batch(1), {steps = 2})
  lu.assertTrue(costs.measured["FETCH state head"].moved_bytes > 0)
  lu.assertTrue(trainer:simulate(batch(1), costs).seconds > 0)
end

-- What a script's action touches as a whole cannot be cut into slices.
function TestOffload:test_own_actions()
  local look = zt.action{name = "LOOK_AT_STATE", reads = {"state"}, start = function() end}
  local pass = zt.pass{name = "look", phase = "overlap", actions = {look}, apply = function(program)
    program.actions[#program.actions + 1] = look(2)
    return program
  end}
  lu.assertErrorMsgContains("leave them in the device's memory", trainer_of, moved({stage = 0}):apply(pass), {})
  local sum = zt.action{name = "SUM_OF_GRADIENT", reads = {"grad"}, start = function(ctx)
    assert(ctx.unit.grad_shard:numel() > 0)
  end}
  local before_norm = zt.pass{name = "sum", phase = "overlap", actions = {sum}, apply = function(program)
    for i, action in ipairs(program.actions) do
      if action.kind == "NORM" and program.mode == "train" then
        table.insert(program.actions, i, sum(2))
        break
      end
    end
    return program
  end}
  for stage = 0, 2, 2 do trainer_of(moved({stage = stage}):apply(before_norm), {}):step(batch(1)) end
  -- What is read after the updates comes to memory as a whole.
  local seen = 0
  local norm = zt.action{name = "NORM_OF_MASTER", reads = {"master"}, start = function(ctx)
    seen = ctx.unit.master:norm():item()
  end}
  local after_steps = zt.pass{name = "norm", phase = "overlap", actions = {norm}, apply = function(program)
    if program.mode == "train" then program.actions[#program.actions + 1] = norm(2) end
    return program
  end}
  local wanted
  for _, move in ipairs{{parameters = "device", gradients = "device", optimizer = "device", folder = {}}, {}} do
    local options = {stage = 3}
    trainer_of(moved(options, move):apply(after_steps), options):step(batch(1))
    wanted = wanted or seen
    lu.assertEquals(seen, wanted)
  end
end

function TestOffload:test_mistakes()
  lu.assertErrorMsgContains("needs a folder", offload.move, {optimizer = "nvme"})
  lu.assertErrorMsgContains("apply offload.move once", trainer_of, moved({stage = 1}):apply(offload.move(MOVES)), {})
  lu.assertErrorMsgContains("give one of them", offload.move, {ratio = 0.5, memory = 0})
  lu.assertErrorMsgContains("does not exist", trainer_of, moved({stage = 0}, {folder = {folder .. "/none"}}), {})
  lu.assertErrorMsgContains("shards of parameters", trainer_of, moved({stage = 1}, {parameters = "nvme"}), {})
  lu.assertErrorMsgContains("as a whole", trainer_of, moved{stage = 1}, {optimizer = optim.muon{lr = 1e-2}})
end

local code = lu.LuaUnit.new():runSuiteByInstances{{"TestOffload", TestOffload}}
mesh:world():barrier()
if rank == 0 then os.execute("rm -rf '" .. folder .. "'") end
os.exit(code)
