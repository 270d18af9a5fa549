-- Tests zero.compress with pipelines, experts, 16-bit gradients and steps by hand. Also runs on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, moe, nn, optim, zero = require "zt.comm", require "zt.moe", require "zt.nn", require "zt.optim", require "zt.zero"
local command, temporary = require "support.command" "run", require "support.temporary"

local VOCAB, SEQ, SAMPLES = 24, 8, 4
local rank = zt.world.rank

local function batch(step)
  local tokens = zt.randint(VOCAB, {SAMPLES, SEQ}, {generator = zt.generator(10 * step + rank)})
  return {tokens = tokens, labels = tokens}
end

local function gpt(mlp)
  return nn.gpt{layers = 1, hidden = 16, heads = 2, vocab = VOCAB, seq = SEQ, seed = 3, mlp = mlp}
end

local function trainer_of(program, options)
  options = options or {}
  return zt.trainer(program, {optimizer = optim.sgd{lr = 0.1}, fp16 = options.fp16})
end

local TestCompressMeshes = {}

-- Gradients of experts that are cut over all data axes are those of one rank: nothing is reduced.
function TestCompressMeshes:test_experts_over_all_ranks()
  local mesh = comm.mesh{ep = -1}
  local experts = gpt(function() return moe.layers{experts = 4, hidden = 16, ffn = 16, axis = mesh.ep} end)
  local program = zt.program(experts):apply(zero.shard{stage = 1, axis = mesh.ep})
  for _, kind in ipairs{"int8", "powersgd"} do
    local trainer = trainer_of(program:apply(zero.compress{kind = kind}))
    for step = 1, 2 do lu.assertTrue(trainer:step(batch(step)).grad_norm > 0) end
  end
end

-- A sum of fp16 numbers may overflow where none of them does.
function TestCompressMeshes:test_large_sums_of_fp16()
  local mesh = comm.mesh{dp = -1}
  local layer = nn.layer{params = {w = zt.zeros{400}}, io = {inputs = {}, outputs = {"y"}}, forward = function(own, ctx)
    return ctx:batch("x"):to(own.w:dtype()) * own.w
  end}
  local loss = zt.loss(function(out) return out.y:to("float32"):sum() end, {inputs = {"y"}, per = "sample", reduction = "sum"})
  local plain = zt.program(nn.sequential{layer, loss}, {precision = "fp16"})
    :apply(zero.shard{stage = 0, axis = mesh.dp, grad_dtype = "fp16"})
  for _, kind in ipairs{"int8", "onebit", "powersgd"} do
    local trainer = trainer_of(plain:apply(zero.compress{kind = kind}), {fp16 = {loss_scale = 512}})
    local result = trainer:step{x = zt.ones{1, 400}}
    lu.assertFalse(result.skipped, kind)
    if kind ~= "onebit" then lu.assertAlmostEquals(result.grad_norm, 20, 0.1) end -- its scale counts the end of the last block
  end
end

-- A compressor adds what it has kept before finish_step is called, so finish_step must not set another divisor.
function TestCompressMeshes:test_a_divisor_by_hand()
  local mesh = comm.mesh{dp = -1}
  local trainer = trainer_of(zt.program(gpt()):apply(zero.shard{axis = mesh.dp}):apply(zero.compress{kind = "int8"}))
  local function by_hand(options)
    trainer:forward(batch(1))
    trainer:backward()
    return trainer:finish_step(options)
  end
  lu.assertTrue(by_hand().grad_norm > 0)
  lu.assertErrorMsgContains("the pass zero.compress has added what it kept", by_hand, {divisor = 100})
  lu.assertTrue(trainer:finish_step{divisor = zt.world.size}.grad_norm > 0)
end

function TestCompressMeshes:test_edited_programs()
  local mesh = comm.mesh{dp = -1}
  local program = zt.program(gpt()):apply(zero.shard{axis = mesh.dp}):apply(zero.compress{kind = "int8"})
  local function edited(change)
    local lines = {}
    for line in program:text():gmatch "[^\n]+" do change(lines, line) end
    local refusals = program:with_actions(table.concat(lines, "\n")):verify()
    return refusals[1] or ""
  end
  lu.assertEquals(edited(function(lines, line) lines[#lines + 1] = line end), "")
  lu.assertStrContains(edited(function(lines, line)
    lines[#lines + 1] = line
    if line:find "^KEEP_UNSENT 0" then lines[#lines + 1] = line end
  end), "it is there 2 times")
  local first = program:text():match "KEEP_UNSENT 0[^\n]*"
  lu.assertStrContains(edited(function(lines, line)
    if line:find "^NORM" then lines[#lines + 1] = first end
    if line ~= first then lines[#lines + 1] = line end
  end), "it comes before NORM")
end

-- The stages that hold a tied parameter have copies of what was kept of it, also on another layout.
function TestCompressMeshes:test_tied_parameters_on_another_layout()
  if zt.world.size > 1 then return end
  local folder, script = temporary(), temporary() .. ".lua"
  zt.write_file(script, ([[
    local zt = require "zt"
    local ckpt, comm, nn = require "zt.ckpt", require "zt.comm", require "zt.nn"
    local optim, pipe, zero = require "zt.optim", require "zt.pipe", require "zt.zero"
    local o = zt.cli{name = "tied", about = "a test", options = {{"load", false, "whether to load"}, {"pp", 1, "stages"}}}
    local mesh = comm.mesh{pp = o.pp, dp = -1}
    local model = nn.gpt{layers = 2, hidden = 16, heads = 2, vocab = 24, seq = 8, tied = true}
    local sum -- of the tied parameter after the step
    local look = zt.action{name = "LOOK_AT_TIED", reads = {"master"}, start = function(ctx)
      assert(ctx.unit.name == "embedding.weight")
      sum = ctx.unit.master:to("float64"):abs():sum():item()
    end}
    local pass = zt.pass{phase = "overlap", actions = {look}, apply = function(program)
      if program.mode == "train" then table.insert(program.actions, look(0)) end
      return program
    end}
    local program = zt.program(model, {micro_batches = 2}):apply(zero.shard{stage = 0, axis = mesh.dp})
    if o.pp > 1 then program = program:apply(pipe.split{axis = mesh.pp}) end
    local trainer = zt.trainer(program:apply(zero.compress{kind = "onebit"}):apply(pass), {optimizer = optim.sgd{lr = 0.1}})
    if o.load then ckpt.load("%s", {trainer = trainer}) end
    for step = 1, 3 do
      local samples = 8 / mesh.dp.size
      local tokens = zt.randint(24, {8, 8}, {generator = zt.generator(step)}):narrow(0, mesh.dp.rank * samples, samples)
      trainer:step{tokens = tokens:contiguous(), labels = tokens:contiguous()}
    end
    if not o.load then ckpt.save("%s", {trainer = trainer}, {step = 1, async = false}) end
    local all = mesh:world():gather_values(sum)
    if zt.world.rank == 0 then print("sums " .. table.concat(all, " ")) end
  ]]):format(folder, folder))
  local function sums_of(...)
    local text, sums = command("--threads", ...), {}
    for number in (text:match "sums ([^\n]*)" or ""):gmatch "%S+" do sums[#sums + 1] = tonumber(number) end
    lu.assertTrue(#sums > 1, text)
    for place = 2, #sums do lu.assertEquals(sums[place], sums[1], text) end
  end
  sums_of("4", script)
  sums_of("4", script, "--load", "--pp", "2")
  sums_of("2", script, "--load", "--pp", "2")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCompressMeshes", TestCompressMeshes}})
