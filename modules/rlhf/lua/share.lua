--- Which part of the work on an experience is this rank's: groups of ranks that compute the same rows of a model take turns.

local core = require "zt.core"
local rlhf = require "zt.rlhf"

local share = {}

--- Returns {index =, count =, is_first =}: this rank's group among `count` groups that have different rows of the trainer's
-- model, and whether the rank is the first of its group. world: the axis of all ranks that hold the experience, or nil. A model
-- that a rank computes by itself makes a group of every rank.
function share.of(trainer, world)
  local found = rlhf.share_of(trainer)
  if found then return found end
  if not world then return {index = 0, count = 1, is_first = true} end
  return {index = world.rank, count = world.size, is_first = true}
end

--- Returns the numbers of group `index` of `count`: consecutive ones, with equal numbers up to one.
function share.part(numbers, index, count)
  local first, last = math.floor(#numbers * index / count), math.floor(#numbers * (index + 1) / count)
  local part = {}
  for i = first + 1, last do part[#part + 1] = numbers[i] end
  return part
end

--- Returns the rows that each group needs at most for its part of the numbers.
function share.rows(experience, numbers, count, seq, padding)
  local most = 0
  for index = 0, count - 1 do
    most = math.max(most, rlhf.count_rows(experience:row_options(share.part(numbers, index, count), seq, padding)))
  end
  return most
end

--- Returns the sum of a tensor on the CPU over the ranks of an axis, each of which has filled other elements of zeros. Without an
-- axis, returns it as it is.
function share.joined(world, tensor)
  if not world or world.size == 1 or tensor:numel() == 0 then return tensor end
  local shared = world:allocate(tensor:size(), tensor:dtype())
  shared:copy_(tensor)
  world:all_reduce(shared)
  return tensor:copy_(shared)
end

--- Runs fn() on every rank. If it fails on some, all fail with the message of the first of these ranks. world: an axis or nil.
function share.together(world, fn)
  local is_done, result = pcall(fn)
  local reason = is_done and "" or tostring(result)
  if not world or world.size == 1 then
    if not is_done then error(result, 0) end
    return result
  end
  for rank, of_rank in ipairs(world:gather_values(reason)) do
    if of_rank ~= "" then error(is_done and ("rank %d: %s"):format(rank - 1, of_rank) or reason, 0) end
  end
  return result
end

--- Returns the axis of all ranks of a mesh, nil for one rank. call: for the message where there are several ranks and no mesh.
function share.world(mesh, call)
  if mesh then
    local world = mesh:world()
    return world.size > 1 and world or nil
  end
  if core.world.size > 1 then
    require "zt.fail"("%s: there are %d ranks, and the engine's model is of this rank alone: give `mesh`, whose ranks share the "
      .. "prompts", call, core.world.size)
  end
  return nil
end

return share
