--- Where a run can be resumed: its newest complete checkpoint, and the command that continues from it.

local html = require "zt.run.report.html"
local native = require "zt.ckpt"
local shell_word = require "zt.run.shell_word"
local text = require "zt.text"

-- Returns the command of the run's start as text. It has mpirun's number of ranks, which a rank's own words lack. Leaves out the
-- words with the pattern `left_out`, if it is given.
local function command_of(record, left_out)
  local words = {}
  for index, word in ipairs(record.command or {}) do
    if index == 1 then
      words[1] = word:match "[^/]+$"
    elseif not (left_out and word:find(left_out)) then
      words[#words + 1] = shell_word(word)
    end
    if index == 2 and record.launch == "mpi" then words[#words + 1] = "-n " .. record.ranks end
  end
  return table.concat(words, " ")
end

-- Returns the command that continues the run instead of replacing it.
local function continuation_of(run)
  return command_of(run.record, "^%-%-overwrite") .. (run.options.resume == false and " --resume" or "")
end

-- Returns what to do with the checkpoint of `step` steps.
local function advice(run, folder, step)
  if run.status.state == "running" then return "<p>The run is under way. Should it end early, this command continues it:</p>" end
  if not (run.script or ""):find("resume", 1, true) then
    return html.format("<p>The script does not resume runs. Add <code>resume = true</code> to zt.run and "
      .. "<code>ckpt.resume(run)</code> after it, or load the checkpoint by <code>ckpt.load(\"%s\", {trainer = trainer})</code>. "
      .. "Then this command continues the run:</p>", folder)
  end
  if step == (run.summary or {}).steps then
    return "<p>All steps of the run are done. With more steps, this command continues it, in the folder where it was started:</p>"
  end
  return "<p>This command continues the run, in the folder where it was started:</p>"
end

local resume = {command_of = command_of}

--- Returns the section of a run.
function resume.section(run)
  local list = native.list(run.path)
  if #list == 0 then return "<p>The run has no checkpoint, so it begins anew. ckpt.save(run, step) saves one.</p>" end
  local name = native.latest(run.path) or list[#list].name
  local folder, step = run.path .. "/" .. name, list[#list].step
  for _, entry in ipairs(list) do
    if entry.name == name then step = entry.step end
  end
  local done = html.format("<p>The newest of %s complete checkpoints is <code>%s</code>: %s steps done, %s.</p>", #list, folder,
                           step, text.bytes(native.folder_bytes(folder)))
  return done .. advice(run, folder, step) .. html.format('<pre class="command">%s</pre>', continuation_of(run))
end

return resume
