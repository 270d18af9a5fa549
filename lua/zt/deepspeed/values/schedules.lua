--- DeepSpeed's learning rates, equal at every step. Each function takes complete options and returns a function from the number
-- of updates done so far to the rate of the next step. Steps skipped for an overflow are no updates.
--
-- DeepSpeed advances its scheduler after an update and starts at -1. So most formulas use `updates - 1`, the first two updates of
-- a warm-up have the same rate, and some schedules treat the first update separately. The schedules of zt.optim have the same
-- shapes without these effects.

local schedules = {}

-- Returns the fraction of the warm-up at DeepSpeed's step `last`, from 0 to 1.
local function warmup_share(options, last)
  if options.warmup_type == "linear" then return last / options.warmup_num_steps end
  return math.log(last + 1) / math.log(options.warmup_num_steps)
end

--- Rises from warmup_min_lr to warmup_max_lr in warmup_num_steps steps, then stays there.
function schedules.WarmupLR(options)
  local low, high, warmup = options.warmup_min_lr, options.warmup_max_lr, options.warmup_num_steps
  return function(updates)
    local last = math.max(updates - 1, 0)
    return low + (high - low) * (last < warmup and warmup_share(options, last) or 1)
  end
end

--- Rises like WarmupLR, then falls linearly to warmup_min_lr at total_num_steps.
function schedules.WarmupDecayLR(options)
  local low, high = options.warmup_min_lr, options.warmup_max_lr
  local warmup, total = options.warmup_num_steps, options.total_num_steps
  return function(updates)
    local last = math.max(updates - 1, 0)
    if last < warmup then return low + (high - low) * warmup_share(options, last) end
    return low + (high - low) * math.max(0, (total - last) / math.max(1, total - warmup))
  end
end

--- Rises from warmup_min_ratio to 1, then falls by half a cosine to cos_min_ratio; the ratios multiply base_lr. The rate of the
-- first update is 0, whatever warmup_min_ratio is.
function schedules.WarmupCosineLR(options)
  local warmup, total, base = options.warmup_num_steps, options.total_num_steps, options.base_lr
  local first, final = options.warmup_min_ratio, options.cos_min_ratio
  return function(updates)
    local last = updates - 1
    if last < 0 then return 0 end
    if last < warmup then return base * (first + (1 - first) * warmup_share(options, last)) end
    local done = math.min(1, (last - warmup + 1) / math.max(1, total - warmup))
    return base * math.max(0, final + (1 - final) * (1 + math.cos(math.pi * done)) / 2)
  end
end

--- Starts at lr_range_test_min_lr and grows by lr_range_test_step_rate x lr_range_test_min_lr per lr_range_test_step_size
-- updates.
function schedules.LRRangeTest(options)
  return function(updates)
    local intervals = updates / options.lr_range_test_step_size
    if options.lr_range_test_staircase then intervals = math.floor(intervals) end
    return options.lr_range_test_min_lr * (1 + options.lr_range_test_step_rate * intervals)
  end
end

-- Returns the position of OneCycle's rate between the lowest (0) and the highest (1), `at` updates after the start of the cycle.
local function cycle_share(options, at)
  local up, down = options.cycle_first_step_size, options.cycle_second_step_size
  local is_up = at <= up
  local share = is_up and at / up or (up + down - at) / down
  local stairs = is_up and options.cycle_first_stair_count or options.cycle_second_stair_count
  if stairs == 0 then return share end
  local stair = is_up and at * stairs / up or (up + down - at) * stairs / down -- share * stairs would round differently
  return math.floor(stair) / stairs
end

--- Rises, falls, and then decays: cycle_min_lr / (1 + decay_lr_rate * n / decay_step_size), n updates after the cycle.
function schedules.OneCycle(options)
  local low, high = options.cycle_min_lr, options.cycle_max_lr
  local total = options.cycle_first_step_size + options.cycle_second_step_size
  local has_decay = options.decay_step_size > 0 and options.decay_lr_rate > 0
  return function(updates)
    if updates - 1 < total then return low + (high - low) * cycle_share(options, updates % total) end
    if not has_decay then return low end
    return low / (1 + options.decay_lr_rate * (updates - total) / options.decay_step_size)
  end
end

return schedules
