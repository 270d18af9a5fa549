-- Models with the heads of RLHF for the tests of files. The folders are those of tests/oracle/make_huggingface.py.
local lu = require "luaunit"
local zt = require "zt"
local ckpt, moe, optim = require "zt.ckpt", require "zt.moe", require "zt.optim"
local models = require "support.huggingface_models"
local safetensors = require "support.safetensors"
local command = require "ckpt.own_command"
local temporary = require "support.temporary"

local cases = {}

--- Families of which export writes one tensor for each that it reads.
cases.NAMES = {}
for _, name in ipairs(models.NAMES) do
  if name ~= "qwen3_moe_stacked" then table.insert(cases.NAMES, name) end
end

--- Returns a trainer of a folder's model with these further options, and the opened folder. mesh: of the trainer, or nil.
function cases.trainer(folder, more, mesh)
  local base = ckpt.pretrained(folder)
  local is_new = more.head == "value" and base.options.head ~= "value"
  for key, value in pairs(more) do base.options[key] = value end
  local program = zt.program(moe.gpt(base.options), {precision = "fp32", mesh = mesh})
  local trainer = zt.trainer(program, {optimizer = optim.adamw{lr = 0.01}})
  base:load(trainer, {head = is_new and "new" or "same"})
  if is_new then cases.fill(trainer, "^head%.value%.weight$") end
  return trainer, base
end

--- Gives the parameters whose names match a pattern values that are equal on all ranks.
function cases.fill(trainer, pattern)
  for number, name in ipairs(trainer:parameters()) do
    if name:find(pattern) then
      zt.manual_seed(number)
      trainer:set_parameter(name, zt.randn(trainer:describe_parameter(name).shape))
    end
  end
end

--- Saves a trainer. Returns the folder of the run.
function cases.saved(trainer)
  local run = temporary()
  ckpt.save(run, {trainer = trainer}, {step = 1, async = false})
  return run
end

--- Runs a command that has to succeed. Returns what it printed, as one line.
function cases.done(...)
  local output, status = command(...)
  lu.assertEquals(status, 0, output)
  return (output:gsub("%s+", " "))
end

--- Runs a command that has to fail with a message.
function cases.refused(message, ...)
  local output, status = command(...)
  lu.assertNotEquals(status, 0)
  lu.assertStrContains((output:gsub("%s+", " ")), message)
end

--- Writes the files of a model: its config.json (a table) and tensors {name = tensor}. Returns the folder.
function cases.folder(config, tensors)
  local folder, list = temporary(), {}
  for name, values in pairs(tensors) do list[#list + 1] = {name = name, shape = values:size(), dtype = values:dtype()} end
  table.sort(list, function(a, b) return a.name < b.name end)
  ckpt.write_safetensors(folder .. "/model.safetensors", list, 1e9, function(name) return tensors[name]:contiguous() end)
  zt.write_file(folder .. "/config.json", zt.json.encode(config))
  return folder
end

--- Returns the tensors of a folder with one file.
function cases.tensors(folder) return safetensors.read(folder .. "/model.safetensors") end

--- Fails unless both have the same tensors, bit by bit.
function cases.check_equal(one, other)
  for name in pairs(other) do lu.assertNotNil(one[name], name) end
  for name, values in pairs(one) do
    lu.assertNotNil(other[name], name)
    lu.assertTrue(values:dtype() == other[name]:dtype() and zt.equal(values, other[name]), name)
  end
end

return cases
