-- The environment of the Lua snippets in documents. They may use names such as `model` and `text` without defining them: a small
-- model, a small corpus, a folder of their own. Reading any other undefined name is an error.
local ffi = require "ffi"
local zt = require "zt"
local comm = require "zt.comm"
local data = require "zt.data"
local nn = require "zt.nn"
local optim = require "zt.optim"

ffi.cdef [[
int chdir(const char *path);
char *getcwd(char *buffer, size_t size);
char *mkdtemp(char *template);
]]

local world = {}

local DS_CONFIG = [[{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1},
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}]]

-- Returns a text with enough different words for a tokenizer with some hundred pieces.
local function sample_text()
  local words, state = {}, 1
  for index = 1, 12000 do
    state = (state * 16807) % 2147483647
    local word = {}
    for place = 1, 3 + state % 5 do word[place] = string.char(97 + math.floor(state / 7 ^ place) % 26) end
    words[index] = table.concat(word) .. (index % 12 == 0 and ".\n" or "")
  end
  return table.concat(words, " ")
end

-- By name: the function that makes the value when a snippet first reads the name. get(name) returns the value of another name.
local MADE = {
  mesh = function() return comm.mesh{pp = 1, dp = -1} end,
  prompts = function() return data.prompts{path = "ask.npy", batch = 8} end,
  text = function(get) return data.tokens{path = "corpus.npy", seq = 32, batch = 4, axis = get "mesh".dp, seed = 1} end,
  model = function()
    return nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = 256, seq = 32, family = "llama", seed = 1}
  end,
  program = function(get) return zt.program(get "model") end,
  trainer = function(get) return zt.trainer(get "program", {optimizer = optim.adamw{lr = 1e-3}}) end,
  run = function(get) return zt.run{name = "snippet", overwrite = true, mesh = get "mesh", trainer = get "trainer"} end,
  schedule = function() return require "zt.pipe".schedule.one_f_one_b{ranks = 2, micro_batches = 4} end,
  steps = function() return 2 end,
  batch = function(get)
    return function() return get "text":batch(0) end
  end,
  tokenizer = function() return data.tokenizer.bytes() end,
  stream = function(get) return get "prompts" end,
  actor = function()
    local policy = nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = 256, seq = 64, head = "logprobs"}
      :append(require("zt.rlhf").loss.grpo{}, "policy")
    return zt.trainer(zt.program(policy), {optimizer = optim.adamw{lr = 1e-3}})
  end,
  reference = function(get) return zt.trainer(zt.program(get("actor").model)) end,
  critic = function()
    return zt.trainer(zt.program(nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = 256, seq = 64, head = "value"}))
  end,
  engine = function(get) return require("zt.infer").engine{trainer = get "actor", tokenizer = get "tokenizer"} end,
  experience = function(get)
    local rlhf = require "zt.rlhf"
    local sampled = rlhf.rollout{engine = get "engine", prompts = {prompts = {{1, 2}, {3}}}, n = 2, max_tokens = 4}
    rlhf.score(sampled, {actor = get "actor", reward = function(_, answer) return #answer end})
    return rlhf.advantages(sampled, {kind = "group"})
  end,
  pairs_batch = function()
    local function row(...) return zt.tensor({{...}}, {dtype = "int64"}) end
    return {tokens = row(1, 2, 3, 1, 2, 4), labels = row(-100, 3, -100, -100, 4, -100), segments = row(0, 0, 0, 1, 1, 1),
            sequence = row(0, 0, 0, 1, 1, 1), positions = row(0, 1, 2, 0, 1, 2)}
  end,
  t = function() return zt.ones(4) end,
  grad = function() return zt.ones(4) end,
  shard = function(get) return zt.zeros(4 / get "mesh".dp.size) end,
}
local MODULES = {
  comm = true, data = true, nn = true, optim = true, pipe = true, zero = true, moe = true, ckpt = true, example = true,
  infer = true, rlhf = true,
}

-- Returns a new environment for one snippet. Snippets share no values.
function world.environment()
  local environment, lookup = {zt = zt, io = io, os = {time = os.time}}, {}
  local function get(name)
    local value = rawget(environment, name)
    if value == nil then
      value = MADE[name](get)
      rawset(environment, name, value)
    end
    return value
  end
  for _, name in ipairs{"assert", "error", "ipairs", "math", "pairs", "pcall", "print", "require", "string", "table", "tonumber",
                        "tostring", "type", "unpack"} do
    environment[name] = _G[name]
  end
  function lookup.__index(_, name)
    if MODULES[name] then return require("zt." .. name) end
    if MADE[name] then return get(name) end
    error(("the snippet reads '%s', which neither it nor tests/lua/support/snippet_world.lua makes"):format(tostring(name)), 2)
  end
  function lookup.__newindex(_, name)
    error(("the snippet sets the global '%s': write local"):format(tostring(name)), 2)
  end
  return setmetatable(environment, lookup)
end

-- Writes files of records into the folder.
local function write_chats(root)
  local chat_files = dofile(root .. "/tests/data/support/chat_files.lua")
  local documents, items = {}, {}
  for index = 1, 20 do
    documents[index], items[index] = chat_files.document("question", "answer " .. index), {answer = index}
  end
  chat_files.write(".", "sft", "conversations", documents)
  chat_files.write(".", "ask", "prompts", documents, items)
end

-- Saves a model of language as the run "sft".
local function write_run()
  local ckpt = require "zt.ckpt"
  local model = nn.gpt{layers = 1, hidden = 32, heads = 2, vocab = 256, seq = 64, family = "llama"}
  ckpt.save("runs/sft", {trainer = zt.trainer(zt.program(model), {optimizer = optim.adamw{lr = 1e-3}})}, {async = false})
end

-- Makes a folder with a corpus, changes to it and calls fn(root), where `root` is the previous folder. Then changes back and
-- removes the folder.
function world.inside(fn)
  local buffer = ffi.new("char[4096]")
  local root = ffi.string(ffi.C.getcwd(buffer, 4096))
  local template = ffi.new("char[32]", "/tmp/zt_snippets_XXXXXX")
  local folder = ffi.string(assert(ffi.C.mkdtemp(template)))
  assert(ffi.C.chdir(folder) == 0)
  zt.mkdir_p "corpus"
  zt.write_file("text.txt", sample_text())
  zt.write_file("ds_config.json", DS_CONFIG)
  for _, output in ipairs{"corpus.npy", "corpus/gcide.npy"} do
    data.tokenize{input = "text.txt", output = output, tokenizer = data.tokenizer.bytes()}
  end
  write_chats(root)
  write_run()
  local is_done, message = pcall(fn, root)
  assert(ffi.C.chdir(root) == 0)
  os.execute("rm -rf '" .. folder .. "'")
  if not is_done then error(message, 0) end
end

return world
