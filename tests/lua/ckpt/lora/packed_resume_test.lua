-- Tests checkpoints of trainers whose frozen matrices are packed: they hold the adapters, and hashes of the matrices. Also runs
-- on two ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local temporary = require "support.temporary"
local ckpt, comm, nn, optim, zero = require "zt.ckpt", require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local mesh = comm.mesh{dp = 1, tp = -1}
local OPTIONS = {layers = 2, family = "llama", hidden = 64, heads = 4, ffn = 128, vocab = 32, seq = 8, seed = 1, std = 0.1}

local function batch(step)
  local tokens = zt.randint(32, {4, 9}, {generator = zt.generator(step), dtype = "int64"})
  return {tokens = tokens:narrow(1, 0, 8):contiguous(), labels = tokens:narrow(1, 1, 8):contiguous()}
end

-- `how`: {format =, stage =, seed = of the base, frozen = without an optimizer}.
local function trainer_of(how)
  how = how or {}
  local options = {lora = {rank = 2, targets = {"q", "v", "down"}}, tensor = mesh.tp}
  for key, value in pairs(OPTIONS) do options[key] = value end
  local model = nn.gpt(options)
  local names = model:pack{format = how.format or "int4", group = 32}
  local program = zt.program(model):apply(zero.shard{axis = mesh.dp, stage = how.stage or 1})
  local trainer = zt.trainer(program, not how.frozen and {optimizer = optim.adamw{lr = 0.01}} or {})
  for number, name in ipairs(names) do
    local shape = trainer:describe_parameter(name).shape
    trainer:set_parameter(name, zt.randn(shape, {generator = zt.generator((how.seed or 7) + number)}):mul(0.1))
  end
  return trainer
end

local TestPackedResume = {}

function TestPackedResume:setUp() self.path = temporary() end

function TestPackedResume:test_goes_on_with_equal_bits()
  local function losses(trainer, first, last)
    local found = {}
    for step = first, last do found[#found + 1] = trainer:step(batch(step)).loss end
    return found
  end
  local whole = losses(trainer_of(), 1, 6)
  local first = trainer_of()
  losses(first, 1, 3)
  ckpt.save(self.path, {trainer = first}, {async = false})
  for _, how in ipairs{{}, {stage = 3}} do
    local second = trainer_of(how)
    ckpt.load(self.path, {trainer = second})
    lu.assertEquals(losses(second, 4, 6), {whole[4], whole[5], whole[6]})
  end
  local frozen = trainer_of{frozen = true}
  ckpt.load(self.path, {model = frozen})
  lu.assertEquals(frozen:evaluate(batch(9)).loss, first:evaluate(batch(9)).loss)
end

function TestPackedResume:test_another_base_is_refused()
  local first = trainer_of()
  first:step(batch(1))
  ckpt.save(self.path, {trainer = first}, {async = false})
  for _, how in ipairs{{seed = 8}, {format = "int8"}} do
    local other = trainer_of(how)
    local before = other:evaluate(batch(9)).loss
    lu.assertErrorMsgContains("is not that of the trainer that was saved", ckpt.load, self.path, {model = other})
    lu.assertErrorMsgContains("give the trainer those of the same base", ckpt.load, self.path, {model = other})
    lu.assertEquals(other:evaluate(batch(9)).loss, before)
  end
end

function TestPackedResume:test_commands_say_that_the_base_is_not_there()
  local first = trainer_of()
  first:step(batch(1))
  ckpt.save(self.path, {trainer = first}, {async = false})
  if zt.world.rank > 0 then return end
  local function refused(text, action, ...) lu.assertErrorMsgContains(text, action, ...) end
  refused("is packed, as int4 and int8, and the checkpoint does not have it: write the adapters by ztoolkit ckpt export "
    .. "--adapter", ckpt.pretrained, self.path)
end

function TestPackedResume:test_nothing_trained_is_refused()
  lu.assertErrorMsgContains("a checkpoint has plain numbers only, so it would be empty", ckpt.save, self.path,
    {model = trainer_of{frozen = true}}, {async = false})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestPackedResume", TestPackedResume}})
