--- The conversation of `ztoolkit generate --chat`.

local answers  = require "zt.cmd.generate.answers"
local core     = require "zt.core"
local requests = require "zt.cmd.generate.requests"

-- Returns the next line of rank 0's input on all ranks; nil at its end.
local function next_line(mesh)
  local line
  if core.world.rank == 0 then
    if core.isatty(0) then answers.say "> " end
    line = io.stdin:read "*l"
  end
  if not mesh then return line end
  return mesh:world():gather_values{line = line}[1].line
end

-- Answers the conversation and prints the text as it is made. Returns the text; or nil and what is wrong.
local function answer_to(messages, engine, o)
  local is_done, result = pcall(engine.generate, engine, requests.completed(o, {messages = messages}),
                                {on_text = function(piece) answers.say(piece.text) end})
  if not is_done then return nil, tostring(result) end
  if result[1].error then return nil, result[1].error end
  return result[1].text
end

--- Holds a conversation by the options `o` of the command line. A message that gets no answer, as for a lack of context, is no
-- part of it. Returns whether there was an answer, or no message that wanted one.
return function(engine, mesh, o)
  requests.check_chat(engine, o.model, "a conversation")
  local function begin() return o.system and {{role = "system", content = o.system}} or {} end
  local messages, answered, failed = begin(), 0, 0
  for line in function() return next_line(mesh) end do
    if line == "/exit" then break end
    if line == "/clear" then
      messages = begin()
    elseif line:find "%S" then
      local earlier = #messages - #begin()
      messages[#messages + 1] = {role = "user", content = line}
      local reply, reason = answer_to(messages, engine, o)
      if reply then
        answered = answered + 1
        answers.say "\n"
        messages[#messages + 1] = {role = "assistant", content = reply}
      else
        failed = failed + 1
        messages[#messages] = nil
        local hint = earlier > 0 and " (/clear begins a new conversation)" or ""
        reason = reason:gsub("^%S+:%d+: ", ""):gsub("^requests?[%[%] %d]*[.:]%s*", "")
        if core.world.rank == 0 then io.stderr:write("generate: ", reason, hint, "\n") end
      end
    end
  end
  return answered > 0 or failed == 0
end
