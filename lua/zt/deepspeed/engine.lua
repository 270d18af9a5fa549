--- zt.initialize: an engine with DeepSpeed's names, for scripts and configurations written for DeepSpeed.
--
--   local engine = zt.initialize{model = model, config = "ds_config.json"}
--   for _ = 1, steps do
--     local loss = engine:forward(batch)     -- one micro-batch of this rank
--     engine:backward(loss)
--     engine:step()                          -- updates the parameters after the last micro-batch of a step
--   end
--
-- The engine is pure Lua on top of zt.program, zero.shard and zt.trainer. Scripts may also use its parts: engine.trainer, .mesh,
-- .axis, .model, .optimizer, .schedule, .data and .config (the result of ds.read). engine.result is the trainer's result of the
-- last step.

local build = require "zt.deepspeed.engine.build"
local check = require "zt.check"
local checkpoints = require "zt.deepspeed.engine.checkpoints"
local class = require "zt.class"
local core = require "zt.core"
local fail = require "zt.fail"
local generation = require "zt.deepspeed.engine.generation"
local log = require "zt.log"
local methods = require "zt.methods"
local reports = require "zt.deepspeed.engine.reports"

local Engine = class.new "Engine"

function Engine:init(options)
  for name, part in pairs(build.parts(options)) do self[name] = part end
  self.training = true
  self.global_steps, self.micro_steps, self.skipped_steps, self.global_samples = 0, 0, 0, 0
  self.step_start = 0 -- micro_steps when the current step began
  self.schedule_start = 0 -- number of updates done when the schedule began
  self.phase = "step" -- the last call: "forward", "backward" or "step"
  self.is_applied = false
  self.generation = generation.new()
  self:follow_schedule()
  reports.open(self)
  if self.config.reports.dump_state then self:dump_state() end
end

-- Rates and counters ----------------------------------------------------------------------------------------------------------

-- Passes the next step's rate to the trainer, unless the trainer has the schedule itself or the script has set a rate.
function Engine:follow_schedule()
  if self.rate and not self.own_lr then self.trainer:set_lr(self:get_lr()) end
end

--- Returns the learning rate of the next step. As in DeepSpeed, the JSON's schedule counts updates: skipped steps do not count.
function Engine:get_lr()
  if self.own_lr then return self.own_lr end
  if self.rate then return self.rate(self.global_steps - self.skipped_steps - self.schedule_start) end
  return self.schedule and self.schedule:lr(self.trainer.global_step, self.optimizer.lr) or self.optimizer.lr
end

--- Sets the learning rate of all later steps. nil returns to the schedule.
function Engine:set_lr(lr)
  if lr ~= nil and not (type(lr) == "number" and lr >= 0) then
    fail("engine:set_lr takes a rate of at least 0, or nil, got %s", type(lr) == "number" and tostring(lr) or check.type_name(lr))
  end
  self.own_lr = lr
  self.trainer:set_lr(lr)
  self:follow_schedule()
end

--- Returns the L2 norm of the last step's gradient before clipping; nil before the first step.
function Engine:get_global_grad_norm() return self.result and self.result.grad_norm end

--- Returns the loss scale of the next step in fp16, otherwise 1.
function Engine:loss_scale() return self.trainer.loss_scale end

--- Returns whether the last call of step or train_batch updated the parameters. False between boundaries and for a skipped step.
function Engine:was_step_applied() return self.is_applied end

--- Returns whether the current micro-batch is the last one of its step.
function Engine:is_gradient_accumulation_boundary() return self:parts_done() + 1 == self.config.batch.accumulation end

-- Returns the number of micro-batches that are done of the current step. A checkpoint's micro_steps may come from steps with
-- another number of micro-batches.
function Engine:parts_done() return self.micro_steps - self.step_start end

function Engine:zero_optimization_stage() return self.config.zero.stage end
function Engine:train_batch_size() return self.config.batch.global end
function Engine:train_micro_batch_size_per_gpu() return self.config.batch.micro end
function Engine:gradient_accumulation_steps() return self.config.batch.accumulation end

--- Logs the configuration as ds.read understood it.
function Engine:dump_state() log.info("%s", reports.dump(self)) end

--- Logs the statistics of communication since the engine's begin, on rank 0. Requires comms_logger in the configuration.
function Engine:log_summary()
  if not self.config.reports.comms_logger then
    fail 'engine:log_summary: nothing was recorded: give "comms_logger": {"enabled": true} in the configuration'
  end
  reports.print_communication(self)
end

--- Sets the mode of `forward`: after train() (or train(true)) it runs a micro-batch of a step, after eval() it evaluates the
-- loss. train() also ends a phase of generation.
function Engine:train(is_training)
  if is_training ~= nil then check.argument("engine:train", "the argument", "boolean", is_training) end
  self.training = is_training ~= false
  if self.training then self:end_generation() end
end

function Engine:eval() self.training = false end

-- Batches ---------------------------------------------------------------------------------------------------------------------

-- Returns the batch with its float fields cast to fp16 if fp16.auto_cast is set; otherwise the batch itself.
function Engine:cast(batch)
  if not self.config.precision.cast_inputs or type(batch) ~= "table" then return batch end
  local out = {}
  for name, field in pairs(batch) do
    local is_float = check.is("tensor", field) and field:is_floating_point() -- the trainer refuses other values
    out[name] = is_float and field:to "float16" or field
  end
  return out
end

-- Fails if `batch` does not have `expected` samples. Values that are no batch pass: the trainer refuses them.
local function check_samples(call, batch, expected, what)
  local field = type(batch) == "table" and select(2, next(batch))
  if not check.is("tensor", field) or field:dim() == 0 or field:size(0) == expected then return end
  fail("engine:%s got %d samples, but this rank's part is %d, %s: give that many, or change the configuration", call,
       field:size(0), expected, what)
end

-- Joins the next `count` micro-batches of `iterator` to one batch.
local function joined(call, iterator, count)
  local fields, out = {}, {}
  for index = 1, count do
    local part = iterator() or fail("engine:%s: the iterator ended after %d of %d micro-batches", call, index - 1, count)
    if type(part) ~= "table" then
      fail("engine:%s: the iterator returned %s, where a micro-batch, a table of tensors, is needed", call, check.type_name(part))
    end
    for name, field in pairs(part) do
      if not check.is("tensor", field) then
        fail("engine:%s: the field '%s' of a micro-batch must be a tensor, got %s", call, tostring(name), check.type_name(field))
      end
      fields[name] = fields[name] or {}
      table.insert(fields[name], field)
    end
  end
  for name, list in pairs(fields) do
    if #list < count then fail("engine:%s: %d of %d micro-batches have no field '%s'", call, count - #list, count, name) end
    out[name] = core.cat(list, 0)
  end
  return out
end

-- Returns this rank's whole batch. `source` is the argument of train_batch or eval_batch: a batch, an iterator of micro-batches,
-- or nil for the next batch of `data`.
function Engine:whole_batch(call, source)
  if source == nil and call == "train_batch" and self.data then source = self.data:batch(self.global_steps) end
  if type(source) == "function" then source = joined(call, source, self.config.batch.accumulation) end
  if type(source) ~= "table" then
    fail("engine:%s takes this rank's batch, or an iterator of its micro-batches%s", call,
         call == "train_batch" and "; without either zt.initialize needs data = a stream of zt.data" or "")
  end
  return self:cast(source)
end

-- A step in three calls -------------------------------------------------------------------------------------------------------

-- By call: the phase that must come before it, and the complaint for each other phase.
local EXPECTED = {
  forward = {after = "step", forward = "its loss is not yet given to engine:backward; for a loss alone call engine:eval() before",
             backward = "engine:step() is missing: it follows every backward, and updates at the boundary only"},
  backward = {after = "forward", step = "there is no engine:forward(batch) in training mode before it",
              backward = "the gradient of this micro-batch is there already: engine:step() is next"},
  step = {after = "backward", step = "there is no engine:forward and engine:backward before it",
          forward = "engine:backward(loss) is missing"},
}

function Engine:expect(call)
  local expected = EXPECTED[call]
  if self.phase ~= expected.after then fail("engine:%s: %s", call, expected[self.phase]) end
end

function Engine:expect_boundary(call)
  local done = self:parts_done()
  if self.phase == "step" and done == 0 then return end
  fail("engine:%s: a step is under way, with %d of %d micro-batches: end it first, or its gradients would be lost", call, done,
       self.config.batch.accumulation)
end

--- Runs the forward pass and returns the mean loss, a number. In training mode `batch` is one micro-batch and the loss is this
-- rank's. In eval mode `batch` may have any number of samples, the loss is over all ranks, and the call is collective.
-- `engine(batch)` is the same.
function Engine:forward(batch)
  if not self.training then return self:evaluated("forward", self:cast(batch)) end
  if self.stages > 1 then
    fail("engine:forward: the stages of a pipeline run all micro-batches of a step together, so forward and backward cannot run "
      .. "one by one: call engine:train_batch(batch)")
  end
  self:expect "forward"
  check_samples("forward", batch, self.config.batch.micro, "train_micro_batch_size_per_gpu")
  self:end_generation()
  if self:parts_done() == 0 then reports.begin_step(self, batch, self.config.batch.accumulation) end
  self.loss = self.trainer:forward(self:cast(batch))
  self.phase = "forward"
  return self.loss
end

Engine.__call = Engine.forward

--- Runs the backward pass of the last forward. Requires the loss that forward returned, unchanged. Returns loss / accumulation,
-- its share of the step's loss.
function Engine:backward(loss)
  self:expect "backward"
  local is_same = loss == self.loss or loss ~= loss and self.loss ~= self.loss -- both nan
  if not is_same then
    fail("engine:backward takes the loss that engine:forward returned, %s, got %s: to scale a loss or add to it, change the "
      .. "model's own (zt.loss)", tostring(self.loss), tostring(loss))
  end
  self.trainer:backward()
  self.phase = "backward"
  return loss / self.config.batch.accumulation
end

--- Ends a micro-batch. After the last micro-batch of a step, updates the parameters; that call is collective.
function Engine:step()
  self:expect "step"
  local is_boundary = self:is_gradient_accumulation_boundary()
  self.phase, self.is_applied = "step", false
  self.micro_steps = self.micro_steps + 1
  if is_boundary then self:end_step(self.trainer:finish_step()) end
end

function Engine:end_step(result)
  self.step_start = self.micro_steps
  self.result, self.is_applied = result, not result.skipped
  self.global_steps = self.global_steps + 1
  self.global_samples = self.global_samples + self.config.batch.global
  if result.skipped then self.skipped_steps = self.skipped_steps + 1 end
  self:follow_schedule()
  reports.end_step(self)
end

-- A step in one call ----------------------------------------------------------------------------------------------------------

--- Runs a whole step: forward, backward and update. `source` is this rank's part of the global batch, or a function that returns
-- one of its micro-batches per call, or nil for the next batch of `data`. Returns the mean loss over the valid tokens of the
-- global batch. (forward, backward and step give every micro-batch the same weight.) Collective.
function Engine:train_batch(source)
  self:expect_boundary "train_batch"
  local batch, sizes = self:whole_batch("train_batch", source), self.config.batch
  check_samples("train_batch", batch, sizes.micro * sizes.accumulation,
                "train_micro_batch_size_per_gpu x gradient_accumulation_steps")
  self:train()
  reports.begin_step(self, batch, 1)
  local result = self.trainer:step(batch)
  self.micro_steps = self.micro_steps + sizes.accumulation
  self:end_step(result)
  -- A checkpoint's state of the stream counts the samples before its next step.
  if source == nil and self.data.seek then self.data:seek(self.global_steps) end
  return result.loss
end

function Engine:evaluated(call, batch)
  self:expect_boundary(call)
  return self.trainer:evaluate(batch).loss
end

--- Returns the loss of a batch of any size, or of an iterator's next micro-batches, without an update. Collective.
function Engine:eval_batch(source)
  local loss = self:evaluated("eval_batch", self:whole_batch("eval_batch", source))
  reports.evaluated(self, loss)
  return loss
end

for name, method in pairs(checkpoints) do Engine[name] = method end
for _, name in ipairs {"generator", "generate", "end_generation"} do Engine[name] = generation[name] end

-- Methods of DeepSpeed's engine that this engine refuses ----------------------------------------------------------------------

for name, use in pairs {
  zero_grad = "the first backward of a step overwrites the gradients: leave the call out",
  no_sync = "gradients are summed over the ranks where the program says (zero.reduce_every): leave it out",
  set_gradient_accumulation_boundary = "the number of micro-batches is part of the program: give gradient_accumulation_steps",
  set_train_batch_size = "the number of micro-batches is part of the program: make another engine",
} do
  Engine[name] = function() fail("engine:%s: %s", name, use) end
end

methods(Engine, "engine", {"data", "schedule", "rate", "own_lr", "loss", "result"})

--- Makes an engine. Collective. Requires the options model and config (a file's name, JSON text or a table). Optional: optimizer
-- and schedule, which replace the JSON's; data; mesh with axis and replicate; pipeline = {stages, schedule, partition, chunks},
-- whose steps are made by train_batch; auto, the values that replace "auto" in the JSON (the context of ds.read); strict, which
-- refuses the keys that are noted.
local function initialize(options) return Engine(options) end

return initialize
