-- Tests `ztoolkit quantise`, and engines of the folders that it writes.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local ckpt, comm, data, infer, nn = require "zt.ckpt", require "zt.comm", require "zt.data", require "zt.infer", require "zt.nn"
local command = require "support.command" "quantise"
local generate = require "support.command" "generate"
local packed_folder = require "zt.infer.packed_folder"
local core = require "zt.core"
local temporary = require "support.temporary"

local OPTIONS = {layers = 2, hidden = 128, heads = 4, ffn = 256, vocab = 256, seq = 64, family = "llama", seed = 3, tied = true}
local request = {prompt = "abc", max_tokens = 12, logprobs = 0}

-- Saves a model of bytes in a folder. Returns the folder.
local function saved()
  local folder = temporary() .. "/run"
  local trainer = zt.trainer(zt.program(nn.gpt(OPTIONS), {precision = "bf16"}), {separate = true})
  ckpt.save(folder, {trainer = trainer}, {step = 0, async = false})
  return folder
end

-- Writes the packed model of the folder. Returns what the command printed, and the folder.
local function quantised(folder, ...)
  local to = temporary()
  local text, status = command(folder, to, ...)
  lu.assertEquals(status, 0, text)
  return text, to
end

local TestQuantise = {}

-- An engine of the written folder answers as one that packs the plain model itself.
function TestQuantise:test_folders()
  if zt.world.size > 1 then return end
  local folder = saved()
  for words, weights in pairs{
    ["--format int8"] = {format = "int8"},
    ["--format int4 --group 32 --symmetric"] = {format = "int4", group = 32, symmetric = true},
    ["--format nf4"] = {format = "nf4"}, ["--format panels"] = {format = "panels"},
    ["--format int4 --keep head"] = {format = "int4", keep = {"head"}},
  } do
    local given = {}
    for word in words:gmatch "%S+" do given[#given + 1] = word end
    local _, to = quantised(folder, unpack(given))
    local expected = infer.engine{model = folder, weights = weights}:generate(request)[1]
    local answer = infer.engine{model = to}:generate(request)[1]
    lu.assertEquals({answer.tokens, answer.text, answer.logprobs}, {expected.tokens, expected.text, expected.logprobs}, words)
  end
end

-- Each rank takes its part of the packed matrices, without another rounding.
function TestQuantise:test_parts_of_ranks()
  local mesh = comm.mesh{dp = 1, tp = -1}
  local trainer, names = zt.trainer(zt.program(nn.gpt(OPTIONS), {precision = "bf16"}), {separate = true}), {}
  for place, parameter in ipairs(trainer.model:parameters()) do names[place] = parameter.name end
  local opened = {options = OPTIONS, dtype = "bf16", names = names, read = function(_, name) return trainer:parameter(name) end}
  for _, weights in ipairs{{format = "int8", group = 32}, {format = "int4", group = 32},
                           {format = "int4", group = 32, symmetric = true}, {format = "panels", dtype = "bf16"}} do
    local to = temporary()
    if zt.world.rank == 0 then packed_folder.write(opened, to, weights) end
    mesh:world():barrier()
    local one = infer.engine{model = to}.trainer
    local cut = infer.engine{model = to, mesh = mesh, tensor = mesh.tp.size > 1 and mesh.tp or nil}.trainer
    for _, parameter in ipairs(one.model:parameters()) do
      lu.assertTrue(zt.op "equal"(cut:parameter(parameter.name), one:parameter(parameter.name)), weights.format .. parameter.name)
    end
  end
end

function TestQuantise:test_pack_and_unpack()
  local matrix = zt.randn{20, 64}
  for _, format in ipairs{{format = "int8"}, {format = "int4", group = 32}, {format = "nf4"},
                          {format = "panels", dtype = "fp32"}} do
    local bytes = zt.pack(matrix, format)
    lu.assertEquals(bytes:dtype(), "uint8")
    local where = {rows = 20, columns = 64}
    for key, value in pairs(format) do where[key] = value end
    local distance = (zt.unpack(bytes, where) - matrix):abs():max():item()
    lu.assertTrue(distance <= ({int8 = 0.02, int4 = 0.3, nf4 = 0.6, panels = 0})[format.format], format.format .. distance)
  end
  lu.assertErrorMsgContains("no multiple of the group", zt.pack, zt.randn{4, 40}, {format = "int8", group = 32})
  lu.assertErrorMsgContains("zt.pack takes a matrix", zt.pack, zt.randn{4}, {format = "int8"})
  lu.assertErrorMsgContains("packed matrices of shape [4, 64] have", zt.unpack, zt.zeros({3}, {dtype = "uint8"}),
                            {format = "int8", rows = 4, columns = 64})
end

function TestQuantise:test_report_and_loss()
  if zt.world.size > 1 then return end
  local folder = saved()
  local base = temporary()
  zt.write_file(base .. ".txt", ("Some text with words, and more of it.\n"):rep(400))
  data.tokenize{input = base .. ".txt", output = base .. ".npy", tokenizer = data.tokenizer.bytes()}
  local text, to = quantised(folder, "--format", "int4", "--data", base .. ".npy", "--batches", "2")
  lu.assertStrMatches(text, ".*int4 +8 +%S+ k +%S+ KiB +4%.50\n.*")
  lu.assertStrMatches(text, ".*int8 +1 +%S+ k +%S+ KiB +8%.25\n.*")
  local packed, plain, more = text:match "loss ([%d.]+), plain ([%d.]+): ([+-][%d.]+) nats"
  lu.assertAlmostEquals(tonumber(packed) - tonumber(plain), tonumber(more), 2e-5)
  lu.assertAlmostEquals(tonumber(plain), math.log(256), 1)
  text = generate(to, "--prompt", "abc", "--max-tokens", "3")
  lu.assertStrContains(text, "3 tokens in")
end

-- A folder as Hugging Face writes it keeps its tokenizer's files.
function TestQuantise:test_huggingface()
  if zt.world.size > 1 then return end
  local folder = temporary()
  local text, status = require "support.command" "ckpt"("export", saved(), folder, "--huggingface")
  lu.assertEquals(status, 0, text)
  zt.write_file(folder .. "/tokenizer_config.json", "{}")
  local _, to = quantised(folder, "--format", "int8")
  local tokens = {prompt = {1, 2, 3}, max_tokens = 4, temperature = 0, logprobs = 0}
  local expected = infer.engine{model = folder, weights = {format = "int8"}}:generate(tokens)[1]
  lu.assertEquals(infer.engine{model = to}:generate(tokens)[1].logprobs, expected.logprobs)
  lu.assertEquals(zt.fs.read(to .. "/tokenizer_config.json"), "{}")
end

-- Returns what the files of a folder hold, by name. Leaves out the folder of files that a run has not made complete.
local function contents_of(folder)
  local contents = {}
  for _, name in ipairs(zt.fs.list(folder)) do
    if name ~= "quantise.partial" then contents[name] = zt.fs.read(folder .. "/" .. name) end
  end
  return contents
end

-- Returns an opened model (model.lua) with a matrix of ones or twos, and a tokenizer's files or none.
local function opened_of(value, files)
  local options = {layers = 1, hidden = 64, heads = 1, ffn = 64, vocab = 256, seq = 32, family = "llama"}
  local names, shapes = {}, {}
  for place, parameter in ipairs(nn.gpt(options):parameters()) do
    names[place], shapes[parameter.name] = parameter.name, parameter.shape
  end
  return {options = options, dtype = "fp32", names = names, files = files, stop_tokens = {},
          read = function(_, name) return zt.ones(shapes[name]) * value end}
end

-- Calls write(), which is ended at the call number `last` of a function that changes files. Returns whether it came to its end.
local function ended_at(last, write)
  local count = 0
  local real = {rename = os.rename, remove = os.remove, write_file = core.write_file}
  local function counted(change)
    return function(...)
      count = count + 1
      if count >= last then error("ended", 0) end
      return change(...)
    end
  end
  os.rename, os.remove, core.write_file = -- luacheck: ignore 122
    counted(real.rename), counted(real.remove), counted(real.write_file)
  local is_done, reason = pcall(write)
  os.rename, os.remove, core.write_file = real.rename, real.remove, real.write_file -- luacheck: ignore 122
  if not is_done then lu.assertEquals(reason, "ended") end
  return is_done
end

-- A folder has the files of one model: wherever the process ends, those of the old one, those of the new one, or none that loads.
function TestQuantise:test_overwrite_mixes_no_models()
  if zt.world.size > 1 then return end
  local weights = {format = "int8", group = 32}
  local with_files = opened_of(1, {["tokenizer_config.json"] = "{}", ["chat_template.jinja"] = "x"})
  for _, pair in ipairs{{with_files, opened_of(2)}, {opened_of(2), with_files}} do
    local contents = {}
    for place, opened in ipairs(pair) do
      local folder = temporary()
      packed_folder.write(opened, folder, weights)
      contents[place] = contents_of(folder)
    end
    local is_done, last = false, 0
    while not is_done do
      last = last + 1
      local folder = temporary()
      packed_folder.write(pair[1], folder, weights)
      is_done = ended_at(last, function() packed_folder.write(pair[2], folder, weights, true) end)
      local left = contents_of(folder)
      local is_old, is_new = pcall(lu.assertEquals, left, contents[1]), pcall(lu.assertEquals, left, contents[2])
      lu.assertEquals(pcall(infer.engine, {model = folder}), is_old or is_new, last)
      packed_folder.write(pair[2], folder, weights, true)
      lu.assertEquals(contents_of(folder), contents[2], last)
    end
    lu.assertTrue(last > 8)
  end
end

function TestQuantise:test_mistakes()
  if zt.world.size > 1 then return end
  local folder = saved()
  local function refused(message, ...)
    local text, status = command(...)
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, "quantise: ")
    lu.assertStrContains(text, message)
    lu.assertNotStrContains(text, "stack traceback")
  end
  local _, to = quantised(folder)
  refused("holds a packed model already", folder, to)
  refused("are packed already, as int8", to, temporary())
  refused("is the name of a file: give a folder", folder, temporary() .. ".safetensors")
  local plain = temporary() -- a model as Hugging Face writes it, which must not be lost
  require "support.command" "ckpt"("export", folder, plain, "--huggingface")
  local content = zt.fs.read(plain .. "/model.safetensors")
  for _, from in ipairs{folder, plain} do
    refused("holds other files than those of a packed model, which could be lost", from, plain, "--overwrite")
  end
  lu.assertEquals(zt.fs.read(plain .. "/model.safetensors"), content)
  zt.write_file(to .. "/model-00001-of-00002.safetensors", "of another model")
  refused("holds 'model-00001-of-00002.safetensors' besides a packed model", folder, to, "--overwrite")
  os.remove(to .. "/model-00001-of-00002.safetensors")
  local again = command(folder, to, "--overwrite")
  lu.assertStrContains(again, "wrote " .. to)
  zt.write_file(to .. "/model.safetensors.partial", "of a run that was ended")
  again = command(folder, to, "--overwrite")
  lu.assertStrContains(again, "wrote " .. to)
  lu.assertFalse(core.exists(to .. "/model.safetensors.partial"))
  local nothing = temporary()
  refused("group", folder, nothing, "--group", "48")
  refused("no parameter has a name that contains 'hed'", folder, nothing, "--keep", "hed")
  refused("--group is the number of columns that share a scale", folder, nothing, "--format", "panels", "--group", "64")
  refused("--symmetric says how int4 makes its codes", folder, nothing, "--symmetric")
  lu.assertFalse(core.exists(nothing))
  refused("there is no folder '/none'", "/none", temporary())
  lu.assertErrorMsgContains("the folder's matrices are packed already, as int8", infer.engine,
                            {model = to, weights = {format = "int4"}})
  local engine = infer.engine{model = to, weights = {activations = "int8"}}
  lu.assertEquals(#engine:generate(request)[1].tokens, 12)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestQuantise", TestQuantise}})
