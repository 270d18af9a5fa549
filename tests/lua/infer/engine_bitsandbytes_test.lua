-- Tests engines of models that bitsandbytes has quantised, beside transformers' answers with the same files
-- (tests/oracle/make_packed.py). Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local comm, infer = require "zt.comm", require "zt.infer"
local cases = require "infer.engine_cases"
local command = require "support.command" "ckpt"
local folders = require "zt.ckpt.loading.huggingface_folder"
local temporary = require "support.temporary"

local FOLDER = "tests/golden/bitsandbytes/"
local GOLDEN = zt.json.decode(zt.fs.read(FOLDER .. "answers.json"))
-- Whether scales can stay nested: in the Llama, queries and keys share no whole blocks.
local NESTED = {llama = false, qwen2 = true, gpt2 = false, mixtral = false, odd = true}

local TestBitsandbytes = {}

local function engine_of(name, more)
  return infer.engine(cases.with({model = FOLDER .. name, dtype = "fp32", cache = {memory = 2 ^ 22}}, more or {}))
end

local function request()
  return {prompt = GOLDEN.prompt, max_tokens = #GOLDEN.answers.llama.tokens, temperature = 0, ignore_eos = true, logprobs = 0}
end

local function check(name, engine)
  local answer, expected = engine:generate(request())[1], GOLDEN.answers[name]
  lu.assertEquals(answer.tokens, expected.tokens, name)
  for place, logprob in ipairs(answer.logprobs) do
    lu.assertAlmostEquals(logprob.logprob, expected.logprobs[place], 1e-5, name)
  end
  return answer
end

function TestBitsandbytes:test_answers_are_those_of_transformers()
  for name in pairs(GOLDEN.answers) do
    local engine = engine_of(name)
    check(name, engine)
    local formats = {}
    for _, parameter in ipairs(engine.trainer.model:parameters()) do
      formats[parameter.name] = parameter.format
      local is_matrix = parameter.name:find "attention.*%a%.weight" and not parameter.name:find "norm"
      if name ~= "mixtral" and name ~= "odd" and is_matrix then lu.assertEquals(parameter.format, "nf4", parameter.name) end
    end
    -- Heads are read as numbers, and so are matrices whose blocks go over the ends of rows.
    if name == "odd" then
      lu.assertEquals({formats["blocks.0.mlp.up.weight"], formats["blocks.0.mlp.down.weight"]}, {"plain", "nf4"})
    end
    lu.assertEquals(formats["head.weight"], name ~= "gpt2" and name ~= "qwen2" and "plain" or nil)
    lu.assertEquals(formats["blocks.0.experts.up.weight"], name == "mixtral" and "nf4" or nil)
    lu.assertEquals(require("zt.ckpt.pretrained.folder").open(FOLDER .. name).weights.nested, NESTED[name], name)
  end
end

-- Layouts have the same answers: the scales are multiplied out for tensor parallelism, without a change of value.
function TestBitsandbytes:test_layouts()
  if zt.world.size == 1 then return end
  local cut = comm.mesh{pp = zt.world.size / 2, tp = 2}
  check("qwen2", engine_of("qwen2", {mesh = cut, tensor = cut.tp, stop_tokens = {}}))
  local divided = comm.mesh{pp = 2, dp = -1}
  check("llama", engine_of("llama", {mesh = divided, pipeline = divided.pp, data = divided.dp}))
  local experts = comm.mesh{ep = -1}
  check("mixtral", engine_of("mixtral", {mesh = experts, experts = experts.ep}))
  check("mixtral", engine_of("mixtral", {mesh = experts, data = experts.ep, shard = {stage = 3}}))
end

-- A plan reads only config.json, and finds the formats that the files have. Before transformers 5, each expert was a matrix of
-- its own and was quantised.
function TestBitsandbytes:test_config_tells_what_is_quantised()
  for _, name in ipairs{"llama", "qwen2", "gpt2", "odd"} do
    lu.assertEquals(folders.described(FOLDER .. name).weights, folders.open(FOLDER .. name, true).weights, name)
  end
  local function kept(path) return table.concat(folders.described(path).weights.keep, " ") end
  lu.assertNotStrContains(kept(FOLDER .. "mixtral"), "experts")
  local folder = temporary()
  zt.mkdir_p(folder)
  local config = zt.json.decode(zt.fs.read(FOLDER .. "mixtral/config.json"))
  config.transformers_version = "5.23.0"
  zt.write_file(folder .. "/config.json", zt.json.encode(config))
  lu.assertStrContains(kept(folder), "experts")
end

-- Returns a copy of a folder whose config.json has other values of the quantisation.
local function changed(values)
  local folder = temporary()
  zt.mkdir_p(folder)
  local config = zt.json.decode(zt.fs.read(FOLDER .. "llama/config.json"))
  for key, value in pairs(values) do config.quantization_config[key] = value end
  zt.write_file(folder .. "/config.json", zt.json.encode(config))
  zt.write_file(folder .. "/model.safetensors", zt.fs.read(FOLDER .. "llama/model.safetensors"))
  return folder
end

function TestBitsandbytes:test_other_formats_are_refused_by_name()
  if zt.world.size > 1 then return end
  local function refused(values, message)
    lu.assertErrorMsgContains(message, infer.engine, {model = changed(values)})
  end
  refused({load_in_4bit = false, load_in_8bit = true}, "quantised by bitsandbytes to 8 bits, which is not read here")
  refused({bnb_4bit_quant_type = "fp4"}, "quantised by bitsandbytes as fp4, which is not read here")
  refused({bnb_4bit_quant_storage = "bfloat16"}, "quantised by bitsandbytes and stored as bfloat16")
end

-- Replaces the first occurrence of a text in the model's file by one of the same length.
local function damaged(from, to)
  local folder = changed{}
  local content = zt.fs.read(folder .. "/model.safetensors")
  local first, last = content:find(from, 1, true)
  lu.assertEquals(#from, #to)
  zt.write_file(folder .. "/model.safetensors", content:sub(1, first - 1) .. to .. content:sub(last + 1))
  return folder
end

function TestBitsandbytes:test_damaged_files()
  if zt.world.size > 1 then return end
  local function refused(folder, message) lu.assertErrorMsgContains(message, infer.engine, {model = folder}) end
  refused(damaged('"quant_type": "nf4"', '"quant_type": "nf5"'),
          "has nf5 in blocks of 64 and 256: only nf4 in blocks of 64 is read")
  refused(damaged('"nested_offset"', '"nested_offzet"'), "has no number 'nested_offset', without which scales are unknown")
  refused(damaged('{"quant_type"', '["quant_type"'), "does not describe a matrix: the file is damaged")
  refused(damaged('"blocksize": 64', '"blocksize": 32'), "has nf4 in blocks of 32 and 256")
  refused(damaged('"shape": [64, 64]', '"shape": [64, 32]'), "of another shape")
  refused(damaged("bitsandbytes__nf4", "bitsandbytes__fp4"), "is a matrix in fp4, and only nf4 is read")
end

-- Importing such a model gives the numbers that its matrices stand for.
function TestBitsandbytes:test_import()
  if zt.world.size > 1 then return end
  local folder = temporary() .. "/run"
  local text, status = command("import", FOLDER .. "llama", folder)
  lu.assertEquals(status, 0, text)
  local engine = infer.engine{model = folder, dtype = "fp32"}
  check("llama", engine)
  lu.assertEquals(engine.trainer.model:parameters()[2].format, "plain")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestBitsandbytes", TestBitsandbytes}})
