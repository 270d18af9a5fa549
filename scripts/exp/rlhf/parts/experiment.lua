--- Functions that the scripts of this folder share: runs and what is measured at their end.
local zt = require "zt"
local ckpt, comm, rlhf = require "zt.ckpt", require "zt.comm", require "zt.rlhf"
local records = require "parts.records"
local sort = require "parts.sort"

local experiment = {HERE = arg[0]:match "^(.*/)[^/]*$" or "./", say = require "parts.say"}

--- Runs another script of this folder, in this process.
function experiment.run(script, arguments)
  local before, words = _G.arg, {[0] = experiment.HERE .. script}
  for i, word in ipairs(arguments) do words[i] = tostring(word) end
  rawset(_G, "arg", words)
  dofile(words[0])
  rawset(_G, "arg", before)
  collectgarbage()
end

--- Returns --model, or the run of sft.lua in the same folder, which runs before if there is none.
function experiment.start_of(o)
  if o.model then return o.model end
  local run = o.folder .. "/sft"
  if o.data and not zt.exists(run) then error("--data needs --model, the model to start from", 0) end
  if not zt.exists(run) or not ckpt.find(run) then
    experiment.say("there is no model to start from: running sft.lua first")
    experiment.run("sft.lua", {"--folder", o.folder, "--seed", o.seed, "--test", 0})
  end
  return run
end

--- Returns the mesh of all ranks, one axis.
function experiment.mesh() return comm.mesh{dp = -1} end

--- Opens the run of a trainer. Its checkpoints keep the tokenizer. base: of ckpt.pretrained, or nil; steps: steps or iterations;
-- show: keys that the progress shows.
function experiment.begin(o, mesh, trainer, stream, base, steps, show)
  local tokenizer = o.tokenizer or base or (not o.data and o.folder .. "/sort") or nil
  return zt.run{name = o.name, folder = o.folder, overwrite = o.overwrite, resume = not o.overwrite, mesh = mesh,
                trainer = trainer, data = stream, options = o, tokenizer = tokenizer, steps = steps, show = show,
                tensorboard = o.tensorboard}
end

--- Resumes a run if it has a checkpoint. Returns the number of steps done. options: of ckpt.resume.
function experiment.resume(run, steps, options)
  local done = ckpt.resume(run, options) or 0
  if done >= steps then
    experiment.say("the run '%s' has made all its %d steps, so nothing is trained: --overwrite begins it anew", run.path, steps)
  end
  return done
end

--- Returns whether to save after `done` of `steps` steps: every --save-every, and at the end.
function experiment.saves(o, done, steps) return done == steps or o.save_every > 0 and done % o.save_every == 0 end

--- Saves, if it is due. objects: what is saved besides the run's trainer.
function experiment.save(o, run, done, steps, objects)
  if experiment.saves(o, done, steps) then ckpt.save(run, done, {keep = 2, objects = objects}) end
end

-- Returns the share of --test unseen prompts of the task of sorting that samples answer rightly; nil for other data.
local function accuracy_of(o, mesh, engine)
  if o.data or o.test == 0 then return nil end
  local answers = records.unseen(o, mesh, engine(), 1)
  rlhf.score(answers, {reward = sort.reward})
  return answers.metrics.reward
end

--- Records what a run of `steps` steps has measured at its end. A run that was complete when it was resumed has gone past its
-- last step, and an earlier start has recorded it.
function experiment.log_end(run, steps, values)
  if run.last_step < steps then run:log(steps - 1, values) end
end

--- Ends a run of `steps` steps: measures how often the answers of an engine are right, if the task says so, and sets
-- experiment.result. engine: a function that returns it; more: what the result has besides.
function experiment.finish(o, mesh, run, engine, steps, more)
  local accuracy = accuracy_of(o, mesh, engine)
  if accuracy then
    experiment.log_end(run, steps, {accuracy = accuracy})
    experiment.say("right in %.3f of %d samples", accuracy, o.test)
  end
  run:finish()
  experiment.result = more or {}
  experiment.result.accuracy, experiment.result.run = accuracy, run.path
end

return experiment
