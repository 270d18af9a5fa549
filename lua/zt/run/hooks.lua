--- Functions that a script hangs on a run: run:on(event, fn).

local check = require "zt.check"
local core = require "zt.core"
local fail = require "zt.fail"

local hooks = {}

local EVENTS = {"evaluate", "save", "step"}

--- Returns the lists of a run without hooks.
function hooks.none()
  local lists = {}
  for _, event in ipairs(EVENTS) do lists[event] = {} end
  return lists
end

--- Adds a hook: fn(step, values) of "step" and "evaluate", fn(steps_done, folder) of "save". run:log calls those of "evaluate"
--- for values with a validation_loss.
function hooks.add(run, event, fn)
  run:expect_open "on"
  check.argument("run:on(event, fn)", "the event", "string", event)
  if not run.hooks[event] then fail("run:on: there is no event '%s'%s", event, core.suggest(event, EVENTS)) end
  check.argument("run:on(event, fn)", "the hook", "function", fn)
  table.insert(run.hooks[event], fn)
end

-- Calls the hooks until one fails. Returns {goes_on =, problem =}.
local function outcome_of(list, event, ...)
  local goes_on = true
  for _, hook in ipairs(list) do
    local is_done, result = pcall(hook, ...)
    if not is_done then return {problem = tostring(result)} end
    if result ~= nil and type(result) ~= "boolean" then
      local info = debug.getinfo(hook, "S")
      local form = "run:on: the hook of '%s' at %s:%d returned %s: let it return nothing, or false to stop the run"
      return {problem = form:format(event, info.short_src, info.linedefined, check.type_name(result))}
    end
    goes_on = goes_on and result ~= false
  end
  return {goes_on = goes_on}
end

--- Calls the hooks of the event on every rank, in the order in which they were added. If one fails on a rank, all ranks get its
--- error. If one returns false on a rank, run:log returns false on all of them from now on. Collective if there are hooks.
function hooks.call(run, event, ...)
  local list = run.hooks[event]
  if #list == 0 then return end
  if run.running_hooks[event] then
    fail("a hook of '%s' calls what calls it: log the values that it computes where the script calls run:log", event)
  end
  run.running_hooks[event] = true
  local own = outcome_of(list, event, ...)
  run.running_hooks[event] = nil
  local all = run.ranks and run.ranks:gather_values(own) or {own}
  if own.problem then error(own.problem, 0) end
  for rank, one in ipairs(all) do
    if one.problem then fail("rank %d: %s", rank - 1, one.problem) end
    run.is_stopping = run.is_stopping or not one.goes_on
  end
end

return hooks
