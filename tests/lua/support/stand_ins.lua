-- Builds engines on stand-ins for mesh, program, passes and trainer. The stand-ins record their arguments.
local zt = require "zt"
local comm = require "zt.comm"
local offload = require "zt.offload"
local zero = require "zt.zero"

local stand_ins = {}

--- Makes `object`, a table, count as an object of the type `kind`, such as "Mesh", where options are checked.
function stand_ins.of(kind, object) return setmetatable(object, {__name = kind}) end

--- A model with three units of 100, 42 (4, padded to 32, and 10) and 1000 elements.
stand_ins.model = stand_ins.of("Model", {parameters = function()
  return {{unit = "a", room = 100}, {unit = "b", room = 4}, {unit = "b", room = 10}, {unit = "c", room = 1000}}
end, inner_axes = {}})

local Trainer = {}
Trainer.__index = Trainer
function Trainer:set_lr(lr) self.lr = lr end
function Trainer:forward(batch) self.batch = batch return 2 end
function Trainer.backward() end
function Trainer:step(batch)
  self.batch = batch
  return self:finish_step()
end
function Trainer:finish_step()
  return {loss = 2, grad_norm = 3, lr = self.lr or 0, seconds = 0.5, skipped = self.is_overflow or false,
          loss_scale = self.loss_scale or 1}
end

--- Replaces fields of tables by stand-ins: `list` is {{table, name, stand-in}, ...}. Returns a function that restores the fields.
function stand_ins.replace(list)
  local kept = {}
  for index, entry in ipairs(list) do
    local at, name, stand_in = unpack(entry)
    kept[index], at[name] = at[name], stand_in
  end
  return function()
    for index, entry in ipairs(list) do entry[1][entry[2]] = kept[index] end
  end
end

--- Returns an engine for `config`, the arguments that the stand-ins recorded, and the logged lines.
function stand_ins.build(config, options)
  local given, lines = {passes = {}}, {}
  local program = {apply = function(self, pass)
    table.insert(given.passes, pass)
    return self
  end}
  local function mesh(value)
    given.mesh = value
    return {dp = "dp", replica = "replica", world = function() return {gather_values = function(_, ...) return {...} end} end}
  end
  local undo = stand_ins.replace{
    {comm, "mesh", mesh}, {zero, "shard", function(value) given.shard = value return "shard" end},
    {zt, "program", function(_, value) given.program = value return program end},
    {offload, "move", function(value) given.offload = value return "move" end},
    {zt, "mkdir_p", function(folder) given.made = folder end},
    {zt, "recompute", function(value) given.recompute = value return "recompute" end},
    {zt, "trainer", function(_, value)
      given.trainer = value
      local fp16 = value.fp16
      local scale = fp16 and (fp16.initial_scale_power and 2 ^ fp16.initial_scale_power or fp16.loss_scale) or 1
      return setmetatable({global_step = 0, loss_scale = scale}, Trainer)
    end},
    {zt.log, "info", function(message, ...) lines[#lines + 1] = message:format(...) end},
  }
  local all = {model = stand_ins.model, config = config}
  for key, value in pairs(options or {}) do all[key] = value end
  config.optimizer = config.optimizer or {type = "SGD", params = {lr = 0.25}}
  config.train_micro_batch_size_per_gpu = config.train_micro_batch_size_per_gpu or 1
  local is_done, engine = pcall(zt.initialize, all)
  undo()
  if not is_done then error(engine, 0) end
  return engine, given, table.concat(lines, "\n")
end

return stand_ins
