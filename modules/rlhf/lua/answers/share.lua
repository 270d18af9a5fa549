--- Which part of the work on an experience is this rank's: groups of ranks that compute the same rows of a model take turns.

local check = require "zt.check"
local ckpt = require "zt.ckpt"
local core = require "zt.core"
local fail = require "zt.fail"
local rlhf = require "zt.rlhf"

local share = {}

-- Trainers of each rank alone that were found equal on all ranks.
local equal = setmetatable({}, {__mode = "k"})

-- Returns {name of a parameter, hash of its values} of all parameters.
local function fingerprints(trainer)
  local list = {}
  for _, name in ipairs(trainer:parameters()) do
    core.scope(function() list[#list + 1] = {name, ckpt.digest(trainer:parameter(name))} end)
  end
  return list
end

-- Fails if ranks that each have a model of their own have different ones: each computes a part of the same numbers. It is checked
-- once per trainer, when it is first used. Collective over world.
local function check_equal(trainer, world)
  if world.size == 1 or equal[trainer] then return end
  local own = share.together(world, function() return fingerprints(trainer) end)
  local all = world:gather_values(own)
  for rank, of_rank in ipairs(all) do
    for place = 1, math.max(#of_rank, #all[1]) do
      local first, other = all[1][place] or {}, of_rank[place] or {}
      if first[1] ~= other[1] or first[2] ~= other[2] then
        fail("each rank has a model of its own, and ranks 0 and %d have different values of '%s', so their parts of the answers "
          .. "would be of different models: give them equal values, or the trainer a mesh", rank - 1, first[1] or other[1])
      end
    end
  end
  equal[trainer] = true
end

--- Returns {index =, count =, is_first =}: this rank's group among `count` groups that have different rows of the trainer's
-- model, and whether the rank is the first of its group. world: the axis of all ranks that hold the experience, or nil. A model
-- that a rank computes by itself makes a group of every rank.
function share.of(trainer, world)
  local found = rlhf.share_of(trainer)
  if found then return found end
  if not world then return {index = 0, count = 1, is_first = true} end
  check_equal(trainer, world)
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

--- Runs fn() on every rank and returns its result. If it fails on some, all fail with the message of the first of these ranks.
-- told(result), if given, returns a text that must be equal on all ranks; call: whose options it is, for the message. world: an
-- axis or nil. Collective over it.
function share.together(world, fn, call, told)
  local is_done, result = pcall(fn)
  if not world or world.size == 1 then
    if not is_done then error(result, 0) end
    return result
  end
  local own = {reason = not is_done and tostring(result) or nil, told = is_done and told and told(result) or nil}
  local all = world:gather_values(own)
  for rank, of_rank in ipairs(all) do
    if of_rank.reason then error(("rank %d: %s"):format(rank - 1, of_rank.reason), 0) end
  end
  for rank, of_rank in ipairs(all) do
    if of_rank.told ~= all[1].told then
      fail("%s: ranks 0 and %d give different options, %s and %s, so they would learn from different numbers: give all ranks the "
        .. "same", call, rank - 1, all[1].told, of_rank.told)
    end
  end
  return result
end

-- Returns a value of an option as a text that is equal for equal plain values. Of others it names the type.
local function text_of(value)
  if type(value) == "number" then
    local short = ("%.15g"):format(value)
    return tonumber(short) == value and short or ("%.17g"):format(value)
  end
  if type(value) ~= "table" or check.type_name(value) ~= "a table" and check.type_name(value) ~= "a list" then
    local is_plain = type(value) == "string" or type(value) == "boolean"
    return is_plain and tostring(value) or check.type_name(value)
  end
  local parts = {}
  for key, each in pairs(value) do parts[#parts + 1] = tostring(key) .. " = " .. text_of(each) end
  table.sort(parts)
  return "{" .. table.concat(parts, ", ") .. "}"
end

--- Returns the options of a call, checked, which all ranks must give alike. schema: as of check.options. left_out: the name of an
-- option that may differ, or nil. more: function(options) with further checks, or nil. Collective over world, an axis or nil.
function share.options(world, call, schema, value, left_out, more)
  local function checked()
    local o = check.options(call, schema, value)
    if more then more(o) end
    return o
  end
  return share.together(world, checked, call, function(o)
    local compared = {}
    for key, each in pairs(o) do
      if key ~= left_out then compared[key] = each end
    end
    return text_of(compared)
  end)
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
