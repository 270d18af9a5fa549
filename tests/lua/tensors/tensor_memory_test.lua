-- Tests when tensors are freed: by release, at the end of a scope, and by the collector, which knows their bytes.
local lu = require "luaunit"
local zt = require "zt"

local function assert_refused(pattern, f, ...)
  local ok, message = pcall(f, ...)
  lu.assertFalse(ok, "should have failed: " .. pattern)
  lu.assertStrContains(message, pattern)
end

local TestRelease = {}

function TestRelease:test_use_after_release_is_an_error()
  local x = zt.zeros(2)
  x:release()
  x:release() -- a second call does nothing
  assert_refused("was released by :release()", x.size, x)
  assert_refused("was released by :release()", function() return x + 1 end)
  assert_refused("was released by :release()", function() return zt.cat({x}, 0) end)
  lu.assertEquals(tostring(x), "a released tensor")
end

function TestRelease:test_memory_is_free_at_once()
  collectgarbage "stop"
  local before = zt.memory().rss_anon
  for _ = 1, 200 do zt.ones(4 * 2 ^ 20):release() end -- 16 MiB each, 3.2 GiB in all
  local grown = zt.memory().rss_anon - before
  collectgarbage "restart"
  -- glibc's aligned allocation keeps about 15 blocks of one size, also freed ones.
  lu.assertTrue(grown < 400 * 2 ^ 20, grown)
end

local TestScope = {}

function TestScope:test_frees_all_but_the_results()
  local outside = zt.zeros(1)
  local lost, kept, nested, passed
  kept, nested, passed = zt.scope(function(argument)
    lost = zt.ones(2)
    return lost + 1, {deep = {lost * 3}}, argument
  end, outside)
  lu.assertEquals(kept:tolist(), {2, 2})
  lu.assertEquals(nested.deep[1]:tolist(), {3, 3})
  lu.assertTrue(rawequal(passed, outside))
  lu.assertEquals(outside:tolist(), {0})
  assert_refused("made inside a zt.scope that has ended: return it", lost.size, lost)
end

function TestScope:test_nests()
  local inner_kept, outer_kept
  zt.scope(function()
    inner_kept = zt.scope(function() return zt.ones(1) end)
    lu.assertEquals(inner_kept:item(), 1)
  end)
  assert_refused("zt.scope that has ended", inner_kept.item, inner_kept)
  outer_kept = zt.scope(function() return zt.scope(function() return zt.ones(1) end) end)
  lu.assertEquals(outer_kept:item(), 1)
end

function TestScope:test_frees_after_an_error()
  local lost
  assert_refused("broken", zt.scope, function()
    lost = zt.ones(2)
    error "broken"
  end)
  assert_refused("zt.scope that has ended", lost.size, lost)
  local after = zt.ones(1) -- belongs to no scope: the error has closed the scope
  collectgarbage()
  lu.assertEquals(after:item(), 1)
end

function TestScope:test_in_place_on_an_outer_tensor_keeps_it()
  local outside = zt.zeros(2)
  zt.scope(function() outside:add_(1) end)
  lu.assertEquals(outside:tolist(), {1, 1})
end

function TestScope:test_collected_tensors_leave_the_scope()
  zt.scope(function()
    for _ = 1, 1000 do zt.zeros(1) end
    collectgarbage()
    collectgarbage()
    for _ = 1, 1000 do zt.zeros(1) end
  end)
end

local TestCollector = {}

-- 10,000 steps with 10 MB of garbage each. If the collector did not know the bytes, this would take 100 GB.
function TestCollector:test_loop_of_large_tensors_stays_small()
  local before, most = zt.memory().rss_anon, 0
  for step = 1, 10000 do
    zt.ones(2500000)
    if step % 100 == 0 then most = math.max(most, zt.memory().rss_anon - before) end
  end
  lu.assertTrue(most < 200 * 2 ^ 20, most)
end

function TestCollector:test_views_count_nothing()
  local big, alive = zt.zeros(2 ^ 24), setmetatable({}, {__mode = "k"}) -- 64 MiB
  collectgarbage()
  collectgarbage "stop"
  alive[{}] = true
  for _ = 1, 100 do
    local _ = big:view(2 ^ 23, 2)[0]
  end
  local is_alive = next(alive) ~= nil -- a collection would have removed the entry
  collectgarbage "restart"
  lu.assertTrue(is_alive)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances {
  {"TestRelease", TestRelease}, {"TestScope", TestScope}, {"TestCollector", TestCollector},
})
