--- rlhf.align_overflow{{actor, batch}, {critic, batch}}: one step of several trainers, which all update or none.

local check = require "zt.check"
local fail = require "zt.fail"

local NAME = "rlhf.align_overflow"

local function check_pairs(list)
  if not check.is("list", list) or #list == 0 then
    fail("%s takes a list of {trainer, batch}, got %s", NAME, check.type_name(list))
  end
  local seen = {}
  for place, each in ipairs(list) do
    if type(each) ~= "table" or not check.is("Trainer", each[1]) or type(each[2]) ~= "table" then
      fail("%s[%d] must be {trainer, batch}", NAME, place)
    end
    if seen[each[1]] then fail("%s[%d]: the trainer is in the list twice: each makes one step", NAME, place) end
    seen[each[1]] = true
  end
end

--- Makes one step of each trainer. A gradient that is not finite, as by an overflow in fp16, lets none of them update: so actor
-- and critic stay at the same number of updates. A loss scale adapts to the overflows of its own trainer. Returns the list of
-- results. The steps are one in the other: each is run up to its norm before any updates. Collective.
local function align_overflow(list)
  check_pairs(list)
  local results = {}
  -- Makes the steps from `place` on. all_finite: of those before. Returns whether all are finite.
  local function step(place, all_finite)
    local each = list[place]
    if not each then return all_finite end
    local are_all
    results[place] = each[1]:step(each[2], {update_if = function(is_finite)
      are_all = step(place + 1, all_finite and is_finite)
      return are_all
    end})
    return are_all
  end
  step(1, true)
  return results
end

return align_overflow
