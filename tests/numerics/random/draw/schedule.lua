--- Draws schedules of pipelines.
local Dice = require "draw.dice"
local pipe = require "zt.pipe"

local draw_schedule = {}

--- Returns what stands for a schedule in a case: {name =}; {costs =, chunks =, placement =, [spare = memory beyond the least]}
--- for one that is searched; or {seed =, chunks =} for one that is drawn when ranks and micro-batches are known.
function draw_schedule.draw(dice)
  if dice:one_in(2) then return {name = dice:pick(pipe.schedule.names())} end
  if dice:one_in(3) then
    local function cost() return dice:between(1, 20) / 10 end
    local schedule = {costs = {F = cost(), I = cost(), W = cost(), transfer = cost() / 2}, chunks = dice:pick{1, 1, 2}}
    schedule.placement = schedule.chunks == 2 and dice:one_in(2) and "v" or "loop"
    if dice:one_in(2) then schedule.spare = dice:below(4) end
    return schedule
  end
  return {seed = dice:below(100000), chunks = dice:pick{1, 1, 2}}
end

--- Returns the text of a schedule without a name.
function draw_schedule.text(schedule, ranks, micro_batches)
  if schedule.costs then
    return pipe.schedule.search{
      ranks = ranks, micro_batches = micro_batches, costs = schedule.costs, chunks = schedule.chunks,
      placement = schedule.placement, memory = schedule.spare and schedule.chunks * ranks + schedule.spare,
    }:text()
  end
  return draw_schedule.random(Dice.new(schedule.seed), ranks, schedule.chunks, micro_batches):text()
end

--- Returns the number of stages per rank.
function draw_schedule.chunks(schedule, ranks)
  if not schedule.name then return schedule.chunks end
  return pipe.schedule[schedule.name]{ranks = ranks, micro_batches = 1}.chunks
end

-- The tasks that may come next. `done[stage][micro_batch]` has the flags F, I and W; a backward sets I and W.
local function ready_tasks(done, splits, stages, micro_batches)
  local ready = {}
  local function add(kind, s, m) ready[#ready + 1] = {kind = kind, s = s, m = m} end
  for s = 0, stages - 1 do
    for m = 0, micro_batches - 1 do
      local mine = done[s][m]
      local is_in_order = m == 0 or done[s][m - 1].W
      local has_gradient = s + 1 == stages or done[s + 1][m].I
      if not mine.F and (s == 0 or done[s - 1][m].F) then add("F", s, m) end
      if mine.F and not mine.I and has_gradient and (splits[s][m] or is_in_order) then add(splits[s][m] and "I" or "B", s, m) end
      if mine.I and not mine.W and is_in_order then add("W", s, m) end
    end
  end
  return ready
end

--- Returns a PipelineSchedule: a random order of all tasks that keeps their dependencies and the order of each stage's sums.
function draw_schedule.random(dice, ranks, chunks, micro_batches)
  local stages = ranks * chunks
  local rank_of_stage, done, splits = {}, {}, {}
  for s = 0, stages - 1 do
    rank_of_stage[s + 1] = s % ranks
    done[s], splits[s] = {}, {}
    for m = 0, micro_batches - 1 do done[s][m], splits[s][m] = {}, dice:one_in(2) end
  end
  dice:shuffle(rank_of_stage)
  local schedule = pipe.schedule.empty{ranks = ranks, micro_batches = micro_batches, rank_of_stage = rank_of_stage}
  while true do
    local ready = ready_tasks(done, splits, stages, micro_batches)
    if #ready == 0 then return schedule end
    local task = dice:pick(ready)
    local mine = done[task.s][task.m]
    if task.kind == "F" then mine.F = true
    elseif task.kind == "I" then mine.I = true
    elseif task.kind == "W" then mine.W = true
    else mine.I, mine.W = true, true end
    schedule:rank(rank_of_stage[task.s + 1]):insert(pipe[task.kind](task.s, task.m))
  end
end

return draw_schedule
