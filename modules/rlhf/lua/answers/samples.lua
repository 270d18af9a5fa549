--- rlhf.samples(run): writes answers to samples.jsonl in the folder of a run, for people and for later training.

local check = require "zt.check"
local class = require "zt.class"
local core = require "zt.core"
local Experience = require "zt.rlhf.answers.experience"
local fail = require "zt.fail"
local fs = require "zt.fs"
local methods = require "zt.methods"
local on_rank_zero = require "zt.on_rank_zero"

local NAME = "rlhf.samples"
local SCHEMA = {
  {"done", "integer", "iterations that an earlier start of the run has done: lines of later ones are removed", default = 0,
   at_least = 0},
  {"most", "integer", "answers that are written of an iteration; 0: all", default = 0, at_least = 0},
}

local Samples = class "Samples"

-- Removes the lines of iterations from `done` on, which a resumed run repeats, and a line that a killed run has left incomplete.
local function rewind(path, done)
  if not core.exists(path) then return end
  local kept = {}
  for line in fs.read(path):gmatch "([^\n]*)\n" do
    local is_whole, record = pcall(core.json.decode, line)
    if is_whole and type(record) == "table" and type(record.iteration) == "number" and record.iteration < done then
      kept[#kept + 1] = line .. "\n"
    end
  end
  core.write_file(path, table.concat(kept))
end

function Samples:init(run, o)
  self.path, self.most, self.ranks = run.path .. "/samples.jsonl", o.most, run.mesh and run.mesh:world()
  on_rank_zero(self.ranks, function() rewind(self.path, o.done) end)
end

-- Returns the line of sequence i, from 1.
local function line_of(experience, iteration, i)
  local prompt, answer = experience:texts(i)
  local first, count = experience:span(i)
  local logprobs = experience.of_tokens.sampled_logprobs:narrow(0, first, count):sum():item()
  return core.json.encode{
    iteration = iteration, sample = experience.groups[i - 1]:item(), copy = experience.copies[i - 1]:item(),
    prompt = prompt or experience:prompt(i):tolist(), answer = answer or experience:answer(i):tolist(),
    reward = experience.rewards and experience.is_kept[i] and experience.rewards[i - 1]:item() or nil,
    length = count, truncated = experience.truncated[i], logprob = logprobs,
  }
end

--- Appends the answers of an iteration, a line each: iteration, sample (the prompt's number), copy, prompt, answer, reward (none
-- if it was dropped), length in tokens, truncated, logprob (the sum over its tokens when it was drawn). Rank 0 writes; an error,
-- as of a full disk, is raised on all ranks. Collective over the run's mesh.
function Samples:add(iteration, experience)
  check.argument("samples:add", "the iteration", "integer", iteration)
  if not class.is(experience, Experience) then
    fail("samples:add takes what rlhf.rollout returns as its second argument, got %s", check.type_name(experience))
  end
  on_rank_zero(self.ranks, function()
    local lines, last = {}, self.most > 0 and math.min(self.most, experience.count) or experience.count
    for i = 1, last do lines[i] = line_of(experience, iteration, i) .. "\n" end
    local file = fs.append(self.path)
    local is_written, reason = pcall(file.write, file, table.concat(lines))
    file:close()
    if not is_written then error(reason, 0) end
  end)
end

methods(Samples, "samples", {"ranks"})

--- Opens samples.jsonl of a run. Collective over the run's mesh.
local function samples(run, value)
  if check.type_name(run) ~= "a Run" then fail("%s takes a run of zt.run, got %s", NAME, check.type_name(run)) end
  return Samples(run, check.options(NAME, SCHEMA, value or {}))
end

return samples
