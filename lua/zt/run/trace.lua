--- Writes one trace file for all ranks, in the format of chrome://tracing and Perfetto (ui.perfetto.dev).

local core = require "zt.core"
local fs = require "zt.fs"

local trace = {}

-- By kind of action: the part of a step that its time counts to. Recomputing counts to the backward, as in DeepSpeed's times.
local PART_OF = {
  F = "forward", B = "backward", I = "backward", W = "backward", R = "backward", NORM = "step", STEP = "step",
  COUNT = "communication", REDUCE_GRAD = "communication", REPLICATE_GRAD = "communication", REDUCE_TIE = "communication",
  UNSHARD = "communication", RESHARD = "communication", SEND = "communication", RECV = "communication",
  SEND_GRAD = "communication", RECV_GRAD = "communication", wait = "communication",
}

local LAYERS = {forward = true, backward = true}

--- Returns whether an event of a trace is a layer's exchange of tensors with other ranks, such as the dispatch of tokens to
--- experts: F or B of a layer that does not compute.
function trace.is_exchange(event)
  return event.cat == "communication" and LAYERS[PART_OF[event.name:match "^%S+"]] or false
end

--- Returns the part of a step to which an event counts: "forward", "backward", "communication", "step", or "other" for kinds of
--- actions that a script has made.
function trace.part_of(event)
  if trace.is_exchange(event) then return "communication" end
  return PART_OF[event.name:match "^%S+"] or "other"
end

--- Returns the path of the file with the events of rank `rank`.
function trace.part(folder, rank) return ("%s/trace.%d.part"):format(folder, rank) end

--- Writes the events of one rank, as text "{...},{...}", for trace.join.
function trace.write_part(folder, rank, events) core.write_file(trace.part(folder, rank), events) end

--- Joins the files of `ranks` ranks into `folder`/trace.json and removes them. Returns the list of ranks whose file is missing.
function trace.join(folder, ranks)
  local events, missing = {}, {}
  for rank = 0, ranks - 1 do
    local path = trace.part(folder, rank)
    local content = core.exists(path) and fs.read(path)
    if not content then missing[#missing + 1] = rank end
    if content and content ~= "" then events[#events + 1] = content end
  end
  core.write_file(folder .. "/trace.json", ('{"traceEvents":[%s]}\n'):format(table.concat(events, ",\n")))
  for rank = 0, ranks - 1 do fs.remove(trace.part(folder, rank)) end
  return missing
end

return trace
