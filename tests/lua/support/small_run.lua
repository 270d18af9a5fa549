-- Small runs in a folder of their own, with a stand-in for a trainer.
local zt = require "zt"

local small_run = {}

local folder = os.tmpname()
os.remove(folder)
small_run.folder = folder

function small_run.open(name, more)
  local options = {name = name, folder = folder, steps = 3}
  for key, value in pairs(more or {}) do options[key] = value end
  return zt.run(options)
end

-- Returns a stand-in with the methods of a trainer that zt.run calls. trainer:add(event) records an event.
function small_run.fake_trainer()
  local events, trainer = {}, {}
  function trainer:trace_start()
    self.is_on, events = true, {'{"name":"process_name","ph":"M","pid":0,"args":{"name":"rank 0"}}'}
  end
  function trainer:add(event) events[#events + 1] = event end
  function trainer:trace_events() return table.concat(events, ",\n") end
  function trainer.memory() return {parameters = {predicted = 8, measured = 8}} end
  function trainer.report() return "memory    parameters 8 B per rank" end
  return setmetatable(trainer, {__name = "Trainer"})
end

function small_run.event(ts) return ('{"name":"F 0 0","ph":"X","pid":0,"tid":0,"ts":%d,"dur":2}'):format(ts) end

-- Returns the words for the events of the run's trace.json: "F 0 0" and the like, with the time for those of actions.
function small_run.traced(path)
  local words = {}
  for index, one in ipairs(zt.json.decode(zt.fs.read(path .. "/trace.json")).traceEvents) do
    words[index] = one.ph == "X" and one.name .. "@" .. one.ts or one.name
  end
  return words
end

--- Runs the tests, removes the folder, and ends the script.
function small_run.finish(suites)
  local failures = require("luaunit").LuaUnit.new():runSuiteByInstances(suites)
  os.execute("rm -rf " .. folder)
  os.exit(failures)
end

return small_run
