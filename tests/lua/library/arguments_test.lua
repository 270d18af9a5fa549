-- Tests that functions of the Lua library refuse wrong arguments themselves: the error is at the script's line and says what is
-- wrong; it is none of Lua's own, from inside the library.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, moe, zero = require "zt.ckpt", require "zt.moe", require "zt.zero"
local ds = require "zt.deepspeed.config"
local engines = require "support.small_engine"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local mesh, folder = small.mesh, temporary()
local WRONG = {
  {"nil"}, {"5", 5}, {"-1.5", -1.5}, {"'x'", "x"}, {"true", true}, {"{}", {}}, {"{5}", {5}}, {"{{}}", {{}}}, {"{a = 1}", {a = 1}},
  {"{a = {}}", {a = {}}}, {"a function", function() end}, {"a mesh", mesh}, {"a tensor", zt.ones(2)},
}

-- Signs of an error that Lua or LuaJIT raised.
local RAW = {"attempt to ", "bad argument #", "invalid value ", "cannot convert '", "index is nil", "/zt/[%w_/]+%.lua:%d+"}

local function raw_part(message)
  message = message:gsub("\nstack traceback:.*", "")
  for _, sign in ipairs(RAW) do
    if message:find(sign) then return message end
  end
  return not message:find "^[^:]*arguments_test%.lua:%d+: " and message or nil
end

-- Calls each function with each wrong value. Names the calls with an error from inside.
local function try_all(functions)
  local problems = {}
  for name, call in pairs(functions) do
    for _, wrong in ipairs(WRONG) do
      local is_done, message = pcall(function()
        call(wrong[2])
        return nil
      end)
      local raw = not is_done and raw_part(tostring(message))
      if raw then problems[#problems + 1] = ("%s, %s: %s"):format(name, wrong[1], raw) end
    end
  end
  table.sort(problems)
  lu.assertEquals(problems, {})
end

local TestArguments = {}

function TestArguments:setUp() zt.log.set_level "off" end

function TestArguments:test_text_and_files()
  local function opened() return zt.fs.append(folder .. "file") end
  try_all {
    count = zt.text.count, bytes = zt.text.bytes, duration = zt.text.duration, shape = zt.text.shape, some = zt.text.some,
    columns = zt.text.columns, read = zt.fs.read, remove = zt.fs.remove, list = zt.fs.list,
    make_folder = function(v) zt.fs.make_folder(type(v) == "string" and folder or v) end,
    append = function(v) zt.fs.append(type(v) == "string" and folder .. v or v) end,
    write = function(v) opened():write(v) end, write_dot = function(v) opened().write(v) end,
    member = function() return opened().writ end, info = zt.log.info, format = function(v) zt.log.info("%d", v) end,
  }
end

function TestArguments:test_plots_and_options()
  local function lines(series) return zt.plot.lines{series = series} end
  try_all {
    lines = zt.plot.lines, series = lines, one = function(v) lines{v} end,
    points = function(v) lines{{name = "a", points = v}} end, point = function(v) lines{{name = "a", points = {v}}} end,
    name = function(v) lines{{name = v, points = {{0, 1}}}} end,
    ticks = zt.plot.ticks, high = function(v) zt.plot.ticks(0, v) end, number = function(v) zt.plot.ticks(0, 1, v) end,
    class = zt.class, base = function(v) zt.class("A", v) end,
    check_options = zt.check_options, schema = function(v) zt.check_options("f", v) end,
    cli = function(v) zt.cli{name = "x", options = v, arguments = {}} end,
    option = function(v) zt.cli{name = "x", options = {v}, arguments = {}} end,
    option_name = function(v) zt.cli{name = "x", options = {{v, 3, "help"}}, arguments = {}} end,
    default = function(v) zt.cli{name = "x", options = {{"a", v, "help"}}, arguments = {}} end,
    help = function(v) zt.cli{name = "x", options = {{"a", 3, v}}, arguments = {}} end,
    type = function(v) zt.cli{name = "x", options = {{"a", nil, "help", type = v}}, arguments = {}} end,
    at_least = function(v) zt.cli{name = "x", options = {{"a", 3, "help", at_least = v}}, arguments = {}} end,
    between = function(v) zt.cli{name = "x", options = {{"a", 3, "help", between = v}}, arguments = {}} end,
    one_of = function(v) zt.cli{name = "x", options = {{"a", "b", "help", one_of = v}}, arguments = {}} end,
    positional = function(v) zt.cli{name = "x", options = {}, positional = {v}, arguments = v and {"a"} or {}} end,
  }
end

function TestArguments:test_training()
  local trainer = small.trainer_of(0)
  local state = trainer:state()
  try_all {
    loss = zt.loss, loss_options = function(v) zt.loss(print, v) end, inputs = function(v) zt.loss(print, {inputs = v}) end,
    generate = function(v) zt.generate(v, {1}, {seq = 4}) end, prompt = function(v) zt.generate(trainer, v, {seq = 4}) end,
    generate_options = function(v) zt.generate(trainer, {1}, v) end, memory_text = zt.memory_text,
    ranks = function(v) zt.memory_text(trainer, v) end, state = function(v) return state[v] end,
    names = function(v) state.names(v) end, each = function(v) state.each(v) end, gathered = zero.gathered,
    gathered_names = function(v) zero.gathered(trainer, v, function() end) end,
    gathered_function = function(v) zero.gathered(trainer, "head.norm.weight", v) end,
    gathered_options = function(v) zero.gathered(trainer, "head.norm.weight", function() end, v) end,
    written = function(v)
      zero.gathered(trainer, "head.norm.weight", function(t) t["head.norm.weight"] = v end, {write_rank = 0})
    end,
  }
end

function TestArguments:test_experts()
  local function layers(more)
    local options = {experts = 2, hidden = 8, ffn = 8}
    for key, value in pairs(more) do options[key] = value end
    return moe.layers(options)
  end
  local function gpt(of_moe, of_run) return moe.gpt({layers = 1, hidden = 8, heads = 2, vocab = 9, moe = of_moe}, of_run) end
  local functions = {
    gpt = moe.gpt, moe = gpt, of_run = function(v) gpt({experts = 2, ffn = 8}, v) end, layers = moe.layers,
    blocks = function(v) gpt{experts = 2, ffn = 8, blocks = v} end, from_deepspeed = moe.from_deepspeed,
    deepspeed_expert = function(v) moe.from_deepspeed{num_experts = 2, hidden_size = 8, expert = v} end,
    shared_layer = function(v) layers{shared = {layer = v}} end, expert = function(v) layers{expert = v, ffn = false} end,
  }
  for _, key in ipairs {"router", "axis", "shared", "residual", "activation", "transport", "dispatcher", "top_k"} do
    functions[key] = function(v) layers{[key] = v} end
  end
  try_all(functions)
end

function TestArguments:test_checkpoints()
  local trainer, at = small.trainer_of(0), folder .. "c"
  ckpt.save(at, {trainer = trainer}, {step = 1, async = false})
  try_all {
    save = function(v) ckpt.save(type(v) == "string" and at or v) end, saved = function(v) ckpt.save(at .. "s", v) end,
    save_options = function(v) ckpt.save(at .. "s", {a = 1}, v) end, saved_trainer = function(v) ckpt.save(at, {trainer = v}) end,
    load = ckpt.load, loaded = function(v) ckpt.load(at, v) end,
    load_options = function(v) ckpt.load(at, {model = trainer}, v) end,
    only = function(v) ckpt.load(at, {model = trainer}, {only = v}) end,
    map = function(v) ckpt.load(at, {model = trainer}, {map = v}) end, resume = ckpt.resume,
    safetensors = ckpt.save_safetensors,
    safetensors_path = function(v) ckpt.save_safetensors(trainer, type(v) == "string" and at .. "/x.safetensors" or v) end,
    safetensors_options = function(v) ckpt.save_safetensors(trainer, at .. "/y.safetensors", v) end,
  }
end

function TestArguments:test_engines()
  local engine = engines.engine_of()
  local functions = {
    initialize = zt.initialize, read = function(v) ds.read(v, {world = 1}) end,
    context = function(v) ds.read("{train_batch_size: 2}", v) end, sizes = ds.sizes, member = function(v) return engine[v] end,
    client_state = function(v) engine:save_checkpoint(folder .. "e", "tag", v) end,
    iterator = function(v) engine:train_batch(function() return v end) end,
    model_function = function(v) engines.engine_of(nil, {model = function() return v end}) end,
  }
  for _, call in ipairs {"forward", "backward", "train_batch", "eval_batch", "set_lr", "train", "save_checkpoint",
                         "load_checkpoint", "save_16bit_model"} do
    functions[call] = function(v) engine[call](engine, type(v) == "string" and folder .. "e" or v) end
  end
  for _, key in ipairs {"model", "config", "optimizer", "schedule", "data", "mesh", "axis", "replicate", "pipeline", "auto"} do
    functions["option " .. key] = function(v) engines.engine_of(nil, {[key] = v}) end
  end
  try_all(functions)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestArguments", TestArguments}})
