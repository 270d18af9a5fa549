-- Tests zero.compress: nothing is lost of gradients, stages agree, checkpoints resume, overflows leave what is kept as it was.
-- Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, nn, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"
local command, temporary = require "support.command" "run", require "support.temporary"

local VOCAB, SEQ = 29, 8
local rank, ranks = zt.world.rank, zt.world.size
local mesh = comm.mesh{dp = -1}
local KINDS = {{kind = "powersgd", rank = 2}, {kind = "int8"}, {kind = "onebit"}}

local function batch(step)
  local all = (zt.arange(8 * SEQ) * 3 + step):remainder(VOCAB):view{8, SEQ}:to "int64"
  local tokens = all:narrow(0, rank * 8 / ranks, 8 / ranks):contiguous()
  return {tokens = tokens, labels = tokens}
end

local function trainer_of(compress, options)
  options = options or {}
  local shard = {axis = mesh.dp, stage = options.stage or 1, reduce_every = options.reduce_every}
  shard.bucket_bytes, shard.node_shared = options.bucket_bytes, options.node_shared
  local model = nn.gpt{layers = 2, hidden = 16, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3}
  local program = zt.program(model, {micro_batches = 2, precision = options.precision}):apply(zero.shard(shard))
  if compress then program = program:apply(zero.compress(compress)) end
  if options.pass then program = program:apply(options.pass) end
  return zt.trainer(program, {optimizer = optim.adamw{lr = 1e-2}, clip = 1, fp16 = options.fp16})
end

local function train(trainer, first, last)
  for step = first, last do trainer:step(batch(step)) end
  return trainer
end

local function assert_same(a, b, why)
  for _, name in ipairs(a:parameters()) do lu.assertTrue(a:master(name):equal(b:master(name)), name .. why) end
end

local TestCompress = {}

-- Returns a pass that calls before(ctx) and after(ctx) around each REDUCE_GRAD, with what zero.compress keeps in
-- ctx.buffer.residual.
local function probe(name, before, after)
  local kept = {zt.buffer{name = "residual", residence = "own"}, zt.buffer{name = "residual_next", residence = "own"}}
  local options = {reads = {"grad"}, buffers = kept, axes = {"dp"}}
  local function action(suffix, start)
    return zt.action{name = name .. suffix, start = start, reads = options.reads, buffers = options.buffers, axes = options.axes}
  end
  local first, last = action("_BEFORE", before), action("_AFTER", after)
  return zt.pass{phase = "overlap", mesh = mesh, actions = {first, last}, apply = function(program)
    local list = {}
    for _, each in ipairs(program.actions) do
      local is_reduction = each.kind == "REDUCE_GRAD"
      if is_reduction then list[#list + 1] = first(each.target) end
      list[#list + 1] = each
      if is_reduction then list[#list + 1] = last(each.target) end
    end
    program.actions = list
    return program
  end}
end

-- What the ranks have sent plus what they keep is the sum of their gradients and of what they had kept.
function TestCompress:test_nothing_is_lost()
  for place, compress in ipairs(KINDS) do
    for stage = 0, 1 do
      for _, precision in ipairs{"fp32", "fp64"} do
        local wanted, seen, kept_some = {}, 0, false
        local function whole(ctx) -- the sum of what all ranks have
          local numel = ctx.buffer.residual:numel()
          local all = ctx.unit.grad:narrow(0, 0, math.min(numel, ctx.unit.grad:numel())) + 0
          all:add_(ctx.buffer.residual:narrow(0, 0, all:numel()))
          mesh.dp:all_reduce(all)
          wanted[ctx.unit.index] = all
        end
        local function compare(ctx)
          local sum = ctx.unit.grad
          if stage > 0 and ranks > 1 then
            sum = zt.zeros({ctx.unit.grad:numel()}, {dtype = ctx.unit.grad:dtype()})
            mesh.dp:all_gather(sum, ctx.unit.grad_shard + 0)
          end
          local all = wanted[ctx.unit.index]
          local kept = ctx.buffer.residual_next:narrow(0, 0, all:numel()) + 0
          kept_some = kept_some or kept:abs():sum():item() > 0
          mesh.dp:all_reduce(kept)
          local error = (sum:narrow(0, 0, all:numel()) + kept - all):abs():max():item()
          lu.assertTrue(error <= (precision == "fp64" and 1e-12 or 1e-4) * math.max(all:abs():max():item(), 1e-3),
                        ("%s at stage %d: %g of %g"):format(compress.kind, stage, error, all:abs():max():item()))
          seen = seen + 1
        end
        local pass = probe(("PROBE_%d_%d_%s"):format(place, stage, precision:upper()), whole, compare)
        train(trainer_of(compress, {stage = stage, precision = precision, bucket_bytes = 0, pass = pass}), 1, 3)
        lu.assertTrue(seen > 9)
        lu.assertEquals(kept_some, ranks > 1)
      end
    end
  end
end

function TestCompress:test_one_rank_rounds_nothing()
  if ranks > 1 then return end
  for _, compress in ipairs(KINDS) do
    for stage = 0, 2 do
      local options = {stage = stage}
      assert_same(train(trainer_of(compress, options), 1, 2), train(trainer_of(nil, options), 1, 2), " with " .. compress.kind)
    end
  end
end

-- Shards of gradients are those of whole ones, and buckets change nothing.
function TestCompress:test_stages_and_buckets()
  for _, compress in ipairs(KINDS) do
    local first = train(trainer_of(compress, {stage = 1, reduce_every = "micro_batch"}), 1, 3)
    assert_same(first, train(trainer_of(compress, {stage = 2}), 1, 3), " at stage 2 with " .. compress.kind)
    local third = trainer_of(compress, {stage = 3, node_shared = false})
    assert_same(first, train(third, 1, 3), " at stage 3 with " .. compress.kind)
    local bucketed = trainer_of(compress, {stage = 1, reduce_every = "micro_batch", bucket_bytes = 0})
    assert_same(first, train(bucketed, 1, 3), " without buckets with " .. compress.kind)
  end
end

function TestCompress:test_it_learns()
  for _, compress in ipairs(KINDS) do
    for _, precision in ipairs{"fp32", "bf16"} do
      local trainer = trainer_of(compress, {stage = 2, precision = precision})
      local first = trainer:step(batch(1)).loss
      train(trainer, 2, 30)
      lu.assertTrue(trainer:step(batch(31)).loss < first / 2, compress.kind .. " " .. precision)
    end
  end
end

function TestCompress:test_a_resumed_run_is_the_same()
  for _, compress in ipairs(KINDS) do
    local folder = temporary()
    local trainer = train(trainer_of(compress), 1, 3)
    ckpt.save(folder, {trainer = trainer}, {step = 3, async = false})
    local other = trainer_of(compress)
    ckpt.load(folder, {trainer = other})
    assert_same(train(other, 4, 6), train(trainer, 4, 6), " after a load with " .. compress.kind)
    local third = trainer_of(compress, {stage = 0})
    ckpt.load(folder, {trainer = third})
    lu.assertTrue(third:step(batch(4)).loss > 0)
    lu.assertErrorMsgContains("buffers/residual", ckpt.load, folder, {trainer = trainer_of()})
  end
end

-- An overflow skips the step on all ranks, and what they keep stays finite.
function TestCompress:test_overflow()
  for _, compress in ipairs(KINDS) do
    local trainer = trainer_of(compress, {precision = "fp16", fp16 = {initial_scale_power = 24, loss_scale_window = 1000}})
    local skipped, last = 0, nil
    for step = 1, 40 do
      local result = trainer:step(batch(step))
      skipped = skipped + (result.skipped and 1 or 0)
      last = result.loss
    end
    lu.assertTrue(skipped > 0 and skipped < 20, ("%s skipped %d"):format(compress.kind, skipped))
    lu.assertTrue(last < 3)
  end
end

-- A step that fails on one rank, in its second micro-batch, leaves all as it was.
function TestCompress:test_a_failed_step()
  for _, compress in ipairs(KINDS) do
    local is_bad = false
    local trips = nn.layer{forward = function(_, h, ctx)
      if is_bad and rank == ranks - 1 and ctx.micro_batch == 1 then error "tripped" end
      return h
    end}
    local function make()
      local model = nn.sequential{
        nn.embedding{vocab = VOCAB, hidden = 20}, nn.linear{["in"] = 20, out = 20}, trips,
        nn.lm_loss{vocab = VOCAB, hidden = 20}, seed = 3,
      }
      local program = zt.program(model, {micro_batches = 2}):apply(zero.shard{stage = 2, axis = mesh.dp, bucket_bytes = 0})
      return zt.trainer(program:apply(zero.compress(compress)), {optimizer = optim.sgd{lr = 0.3}})
    end
    local failing, other = train(make(), 1, 2), train(make(), 1, 2)
    is_bad = true
    lu.assertErrorMsgContains("tripped", failing.step, failing, batch(3))
    is_bad = false
    assert_same(train(failing, 3, 5), train(other, 3, 5), " after a failed step with " .. compress.kind)
  end
end

-- A checkpoint loads on a layout that cuts experts otherwise. Each group of replicas keeps thin matrices of its own.
function TestCompress:test_experts_and_replicas()
  if ranks == 1 then return end
  local moe = require "zt.moe"
  local spread = {ep = comm.mesh{dp = 1, ep = ranks}, dp = comm.mesh{dp = ranks, ep = 1}}
  local function with_experts(axes)
    local layers = moe.layers{experts = 4, hidden = 16, ffn = 32, top_k = 1, axis = axes.ep}
    local model = nn.sequential{
      nn.embedding{vocab = VOCAB, hidden = 16}, {"experts", layers}, nn.lm_loss{vocab = VOCAB, hidden = 16}, seed = 3,
    }
    local program = zt.program(model):apply(zero.shard{axis = axes:join{"dp", "ep"}}):apply(zero.compress{kind = "int8"})
    return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}})
  end
  local folder = temporary()
  ckpt.save(folder, {trainer = train(with_experts(spread.ep), 1, 2)}, {step = 2, async = false})
  local other = with_experts(spread.dp)
  ckpt.load(folder, {trainer = other})
  lu.assertTrue(train(other, 3, 3):step(batch(4)).loss > 0)

  local axes = comm.mesh{replica = ranks, dp = 1, order = {"replica", "dp"}}
  local function with_replicas()
    local model = nn.sequential{
      nn.embedding{vocab = VOCAB, hidden = 16}, nn.linear{["in"] = 16, out = 16}, nn.lm_loss{vocab = VOCAB, hidden = 16},
      seed = 3,
    }
    local program = zt.program(model):apply(zero.shard{axis = axes.dp, replicate = axes.replica, stage = 1})
    return zt.trainer(program:apply(zero.compress{kind = "powersgd", rank = 2}), {optimizer = optim.sgd{lr = 0.1}})
  end
  local first, again, place = train(with_replicas(), 1, 2), with_replicas(), temporary()
  ckpt.save(place, {trainer = first}, {step = 2, async = false})
  ckpt.load(place, {trainer = again})
  assert_same(train(again, 3, 4), train(first, 3, 4), " in groups of replicas")
end

function TestCompress:test_mistakes()
  local contains = lu.assertErrorMsgContains
  contains("zero.compress.kind", zero.compress, {kind = "int4"})
  contains('only with kind = "powersgd"', zero.compress, {kind = "int8", rank = 2})
  contains("zero.compress.rank", zero.compress, {kind = "powersgd", rank = 0})
  local function twice()
    local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = VOCAB, seq = SEQ}
    local program = zt.program(model):apply(zero.shard{axis = mesh.dp, reduce_dtype = "bf16"}):apply(zero.compress{kind = "int8"})
    zt.trainer(program, {optimizer = optim.sgd{lr = 1}})
  end
  contains("leave reduce_dtype out", twice)
end

-- On another number of ranks the first rank begins with the sum of what the ranks had kept.
function TestCompress:test_another_number_of_ranks()
  if ranks > 1 then return end
  local folder, script = temporary(), temporary() .. ".lua"
  zt.write_file(script, ([[
    local zt = require "zt"
    local ckpt, comm, nn = require "zt.ckpt", require "zt.comm", require "zt.nn"
    local optim, zero = require "zt.optim", require "zt.zero"
    local o = zt.cli{name = "kept", about = "a test", options = {{"load", false, "whether to load"}}}
    local mesh = comm.mesh{dp = -1}
    local model = nn.sequential{nn.layer{io = {inputs = {}}, forward = function(_, ctx) return ctx:batch "x" end},
      nn.linear{["in"] = 16, out = 16}, zt.loss(function(out) return out.h:pow(2):sum() end,
      {inputs = {"h"}, per = "sample", reduction = "sum"}), seed = 1}
    local residual, totals = zt.buffer{name = "residual", residence = "own"}, {}
    local look = zt.action{name = "LOOK_AT_KEPT", buffers = {residual}, start = function(ctx)
      totals[zt.world.rank + 1] = ctx.buffer.residual:sum():item()
    end}
    local pass = zt.pass{phase = "overlap", mesh = mesh, actions = {look}, apply = function(program)
      table.insert(program.actions, o.load and 1 or #program.actions + 1, look(0))
      return program
    end}
    local program = zt.program(model):apply(zero.shard{axis = mesh.dp}):apply(zero.compress{kind = "onebit"}):apply(pass)
    local trainer = zt.trainer(program, {optimizer = optim.sgd{lr = 1e-3}})
    if o.load then ckpt.load("%s", {trainer = trainer}) end
    trainer:step{x = zt.randn({4, 16}, {generator = zt.generator(zt.world.rank)})}
    if not o.load then ckpt.save("%s", {trainer = trainer}, {step = 1, async = false}) end
    local sum = 0
    for _, one in ipairs(mesh.dp:gather_values(totals[zt.world.rank + 1])) do sum = sum + one end
    if zt.world.rank == 0 then print(("kept %%.4f"):format(sum)) end
  ]]):format(folder, folder))
  local saved = command("--threads", "2", script)
  local kept = tonumber(saved:match "kept (%S+)")
  lu.assertNotNil(kept, saved)
  for _, count in ipairs{"3", "1"} do
    local loaded = command("--threads", count, script, "--load")
    lu.assertStrContains(loaded, "the first rank begins with their sum")
    lu.assertAlmostEquals(tonumber(loaded:match "kept (%S+)"), kept, 2e-3, loaded)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCompress", TestCompress}})
