-- Adapters for the tests of engines with a LoRA adapter (tests/oracle/make_adapters.py).
local lu = require "luaunit"
local zt = require "zt"
local infer, ckpt = require "zt.infer", require "zt.ckpt"
local cases = require "infer.engine_cases"
local temporary = require "support.temporary"

local adapters = {FOLDER = "tests/golden/adapters/", CONFIG = "/adapter_config.json", TENSORS = "/adapter_model.safetensors"}

adapters.GOLDEN = zt.json.decode(zt.fs.read(adapters.FOLDER .. "answers.json"))
local FOLDER, GOLDEN, CONFIG, TENSORS = adapters.FOLDER, adapters.GOLDEN, adapters.CONFIG, adapters.TENSORS

--- Returns an engine of the base of an adapter, with the adapter and further options.
function adapters.engine(name, more)
  return infer.engine(cases.with({model = FOLDER .. GOLDEN.answers[name].base, adapter = FOLDER .. name, dtype = "fp32",
                                  cache = {memory = 2 ^ 22}}, more or {}))
end

--- Returns the request that GOLDEN answers.
function adapters.request()
  return {prompt = GOLDEN.prompt, max_tokens = #GOLDEN.answers.llama_all.tokens, temperature = 0, ignore_eos = true, logprobs = 0}
end

--- Fails unless an engine gives the answer of the merged model.
function adapters.check(name, engine)
  local answer, expected = engine:generate(adapters.request())[1], GOLDEN.answers[name]
  lu.assertEquals(answer.tokens, expected.tokens, name)
  for place, logprob in ipairs(answer.logprobs) do
    lu.assertAlmostEquals(logprob.logprob, expected.logprobs[place], 1e-5, name)
  end
end

--- Returns {name = values} of an adapter that was saved.
function adapters.tensors(name)
  local files, tensors = ckpt.safetensors(FOLDER .. name .. TENSORS), {}
  for _, tensor in ipairs(files:tensors()) do tensors[tensor.name] = files:read(tensor.name) end
  return tensors
end

--- Writes the folder of an adapter. Returns its name.
function adapters.write(config, tensors)
  local folder, list = temporary(), {}
  zt.mkdir_p(folder)
  for name, values in pairs(tensors) do list[#list + 1] = {name = name, shape = values:shape(), dtype = values:dtype()} end
  table.sort(list, function(a, b) return a.name < b.name end)
  zt.write_file(folder .. CONFIG, type(config) == "string" and config or zt.json.encode(config))
  ckpt.write_safetensors(folder .. TENSORS, list, 5e9, function(name) return tensors[name] end)
  return folder
end

--- Returns the configuration of an adapter.
function adapters.config(name) return zt.json.decode(zt.fs.read(FOLDER .. name .. CONFIG)) end

--- Returns a copy of an adapter with other keys and tensors. false: without the key or the tensor.
function adapters.changed(name, keys, tensors)
  local config, all = adapters.config(name), adapters.tensors(name)
  for key, value in pairs(keys or {}) do config[key] = value end
  for key, values in pairs(tensors or {}) do all[key] = values or nil end
  return adapters.write(config, all)
end

return adapters
