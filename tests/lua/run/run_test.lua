-- Tests zt.run on one rank: the folder of a run and its files. tests/experiments tests it on several ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local small_run = require "support.small_run"
local zt = require "zt"

local folder, open, fake_trainer = small_run.folder, small_run.open, small_run.fake_trainer
local event, traced = small_run.event, small_run.traced

local function lines_of(path)
  local lines = {}
  for line in io.lines(path) do lines[#lines + 1] = line end
  return lines
end

local TestRun = {}

function TestRun:setUp() zt.log.set_level "error" end

function TestRun:test_a_whole_run()
  local trainer = fake_trainer()
  local run = open("whole", {trainer = trainer, options = {layers = 2}})
  lu.assertTrue(trainer.is_on)
  for step = 0, 2 do
    trainer:add(event(step))
    run:log(step, {loss = 3 - step, tokens_per_second = 10})
  end
  run:log(2, {validation_loss = 1.5})
  run:finish()
  local lines = lines_of(run.path .. "/metrics.jsonl")
  lu.assertEquals(#lines, 4)
  lu.assertEquals(zt.json.decode(lines[2]), {step = 1, loss = 2, tokens_per_second = 10})
  lu.assertStrContains(zt.fs.read(run.path .. "/loss.svg"), ">validation</text>")
  local names = traced(run.path)
  table.sort(names)
  lu.assertEquals(names, {"F 0 0@0", "F 0 0@1", "F 0 0@2", "process_name", "step 0", "step 1", "step 2", "step 2"})
  lu.assertEquals(zt.fs.read(run.path .. "/script.lua"), zt.fs.read(arg[0]))
  local record = zt.json.decode(zt.fs.read(run.path .. "/options.json"))
  lu.assertEquals({record.name, record.options, record.ranks}, {"whole", {layers = 2}, 1})
  lu.assertStrContains(table.concat(record.command, " "), "run_test.lua")
end

function TestRun:test_an_existing_folder_is_kept_unless_asked()
  local run = open("kept")
  run:log(0, {loss = 1})
  run:finish()
  lu.assertErrorMsgContains("exists: choose another name (zt.run{name}), or replace that run (zt.run{overwrite = true})", open,
                            "kept")
  local flags = require("zt.run.script").flags
  flags.name = "--name" -- as zt.cli does for a script with an option of that name
  lu.assertErrorMsgContains("choose another name (--name), or replace that run (zt.run{overwrite = true})", open, "kept")
  flags.name = nil
  lu.assertEquals(#lines_of(run.path .. "/metrics.jsonl"), 1)
  zt.write_file(run.path .. "/notes.txt", "mine")
  open("kept", {overwrite = true}):finish()
  lu.assertEquals(lines_of(run.path .. "/metrics.jsonl"), {})
  lu.assertFalse(zt.exists(run.path .. "/run.lock"))
  lu.assertEquals(zt.fs.read(run.path .. "/notes.txt"), "mine")
end

function TestRun:test_a_run_that_fails_in_between_keeps_its_lines()
  local run = open("failed")
  run:log(0, {loss = 1})
  pcall(function() run:log(1, {loss = zt.tensor{1}}) end)
  lu.assertEquals(lines_of(run.path .. "/metrics.jsonl"), {'{"loss":1,"step":0}'})
end

function TestRun:test_what_log_refuses()
  local run = open("wrong", {steps = 3})
  local function refused(message, ...)
    lu.assertErrorMsgContains(message, run.log, run, ...)
    local _, text = pcall(function(...) run:log(...) end, ...)
    lu.assertStrMatches(text, "[^:]*run_test%.lua:%d+: run:.*")
  end
  run:log(0, {loss = 3})
  refused("the step is an integer from 0 on, got a table", {loss = 1})
  refused("the step is an integer from 0 on, got -1", -1, {loss = 1})
  refused("the step is an integer from 0 on, got 0.5", 0.5, {loss = 1})
  refused("the step is an integer from 0 on, got inf", math.huge, {loss = 1})
  refused("the values are a table, such as {loss = 2.5}, got a number", 1, 2.5)
  refused("the values are a table, such as {loss = 2.5}, got nil", 1)
  refused("the values have names, such as {loss = 2.5}, got an integer as a name", 1, {2.5})
  refused("step 3 is beyond the last one, 2: steps count from 0, and zt.run has steps = 3", 3, {loss = 1})
  run:log(2, {loss = 1})
  refused("step 1 is before step 2, which the run has reached", 1, {loss = 1})
  run:rewind(1)
  run:log(1, {loss = 2})
  lu.assertEquals(lines_of(run.path .. "/metrics.jsonl"), {'{"loss":3,"step":0}', '{"loss":2,"step":1}'})
  run:finish()
  refused("run:log comes after run:finish(), which has closed the run 'wrong'", 2, {loss = 1})
  for _, call in ipairs{"finish", "check_lock", "rewind"} do
    lu.assertErrorMsgContains("run:" .. call .. " comes after run:finish()", run[call], run, 0)
  end
  lu.assertEquals(#lines_of(run.path .. "/metrics.jsonl"), 2)
end

-- A start that resumes changes the earlier run's files with its first log, not before.
function TestRun:test_a_resumed_run_waits_with_its_record()
  local first = open("later", {options = {layers = 1}})
  first:log(0, {loss = 1})
  first:finish()
  local function text(name) return zt.fs.read(first.path .. "/" .. name) end
  local options, metrics = text "options.json", text "metrics.jsonl"
  local again = open("later", {resume = true, options = {layers = 2}})
  lu.assertEquals({text "options.json", text "metrics.jsonl"}, {options, metrics})
  again:log(1, {loss = 0.5})
  lu.assertEquals(zt.json.decode(text "options.json").options, {layers = 2})
  lu.assertEquals(text "metrics.jsonl", metrics .. '{"loss":0.5,"step":1}\n')
  again:finish()
end

-- A line that a killed run has not finished does not swallow the next one. The plot has the earlier lines, too.
function TestRun:test_a_run_resumes_after_an_unfinished_line()
  local first = open("cut")
  for step = 0, 1 do first:log(step, {loss = 1}) end
  first:finish()
  local path = first.path .. "/metrics.jsonl"
  zt.write_file(path, zt.fs.read(path) .. '{"loss":9.5,"st')
  local again = open("cut", {resume = true})
  again:log(2, {loss = 0.5})
  again:finish()
  lu.assertEquals(lines_of(path), {'{"loss":1,"step":0}', '{"loss":1,"step":1}', '{"loss":0.5,"step":2}'})
  local _, points = zt.fs.read(again.path .. "/loss.svg"):gsub("<circle", "")
  lu.assertEquals(points, 3)
end

-- The plot and the progress forget the steps that are repeated.
function TestRun:test_rewind()
  local run = open("back", {steps = 9})
  for step = 0, 4 do run:log(step, {loss = 5 - step, validation_loss = step == 4 and 7 or nil}) end
  run:rewind(3)
  run:log(3, {loss = 2})
  run:rewind(2)
  run:log(2, {loss = 3})
  lu.assertEquals(run.progress.latest, {loss = 3})
  run:finish()
  local svg = zt.fs.read(run.path .. "/loss.svg")
  local _, points = svg:gsub("<circle", "")
  lu.assertEquals({points, svg:find "validation"}, {3})
  lu.assertEquals(#lines_of(run.path .. "/metrics.jsonl"), 3)
end

-- Numbers that cannot be drawn do not hold the run up.
function TestRun:test_very_large_numbers()
  local run = open("large", {show = {"flops"}})
  run:log(0, {loss = 1e17, flops = 6.77e17})
  run:log(1, {loss = 1e17, flops = 1.7e308})
  run:log(2, {loss = 5e-324, flops = -1.7e308})
  run:finish()
  lu.assertStrContains(zt.fs.read(run.path .. "/loss.svg"), "</svg>")
end

-- Without ckpt.resume, which cuts them, the lines of the earlier run count as logged.
function TestRun:test_a_resumed_run_does_not_repeat_steps()
  local first = open "again"
  for step = 0, 2 do first:log(step, {loss = 1}) end
  first:finish()
  local path = first.path .. "/metrics.jsonl"
  zt.write_file(path, zt.fs.read(path) .. '\0\0\n{"loss":1,"ste')
  local again = open("again", {resume = true})
  lu.assertErrorMsgContains("step 1 is before step 2, which the earlier run in '" .. first.path .. "' has reached: continue that "
    .. "run from its checkpoint by ckpt.resume(run) after zt.run, or choose a new folder (zt.run{name})", again.log, again, 1,
    {loss = 1})
  again:rewind(1)
  again:log(1, {loss = 2})
  again:finish()
  lu.assertEquals(lines_of(path), {'{"loss":1,"step":0}', '{"loss":2,"step":1}'})
end

function TestRun:test_members()
  local run = open "members"
  lu.assertErrorMsgContains("a Run has no member 'pathh': did you mean 'path'?", function() return run.pathh end)
  lu.assertErrorMsgContains("a Run has no member 'finnish': did you mean 'finish'?", function() run:finnish() end)
  lu.assertEquals({run.trainer, run.data}, {})
  run:finish()
end

function TestRun:test_numbers_that_json_lacks()
  local run = open("nan")
  run:log(0, {loss = 0 / 0, grad_norm = math.huge}) -- both become null
  lu.assertEquals(zt.json.decode(lines_of(run.path .. "/metrics.jsonl")[1]), {step = 0})
  run:finish()
end

function TestRun:test_a_disk_that_is_full()
  local run = open("full")
  run:log(0, {loss = 1})
  run.metrics = zt.fs.append("/dev/full")
  lu.assertErrorMsgContains("cannot write '/dev/full': No space left on device", run.log, run, 1, {loss = 1})
  lu.assertEquals(#lines_of(run.path .. "/metrics.jsonl"), 1)
end

function TestRun:test_one_run_at_a_time()
  local run = open "held"
  for _, options in ipairs {{resume = true}, {overwrite = true}} do
    lu.assertErrorMsgContains("belongs to a run that has not ended: process ", open, "held", options)
  end
  run:log(0, {loss = 1})
  run:check_lock()
  lu.assertEquals(#lines_of(run.path .. "/metrics.jsonl"), 1)
  run:finish()
  local again = open("held", {resume = true})
  zt.write_file(again.path .. "/run.lock", "") -- simulates a takeover by another machine's run
  lu.assertErrorMsgContains("is no longer held by this run", again.check_lock, again)
  again:finish()
end

function TestRun:test_names()
  lu.assertErrorMsgContains("must be the name of a folder", open, "a\0b")
  lu.assertErrorMsgContains("NUL character", open, "x", {folder = folder .. "/a\0b"})
  for _, name in ipairs {"", ".", "..", "a/b"} do
    lu.assertErrorMsgContains("zt.run.name must be the name of a folder", open, name)
  end
  lu.assertErrorMsgContains("zt.run: option 'name' is missing", zt.run, {})
  lu.assertErrorMsgContains("zt.run: unknown option 'stesp': did you mean 'steps'?", zt.run, {name = "x", stesp = 3})
end

function TestRun:test_a_folder_that_cannot_be_made()
  zt.mkdir_p(folder)
  zt.write_file(folder .. "/file", "")
  lu.assertErrorMsgContains("Not a directory", open, "x", {folder = folder .. "/file"})
end

small_run.finish{{"TestRun", TestRun}}
