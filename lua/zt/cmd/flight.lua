-- ztoolkit flight: explains why a run hung or failed. The flight recorder's files in the run's folder show which rank waited for
-- which.
--
--   ztoolkit flight runs/gpt             prints the verdict, as the run printed it
--   ztoolkit flight runs/gpt --last 5    prints also the last five calls of every rank on every axis
--
-- A run writes RUN/flight/rank*.json when it fails, crashes, receives a signal to end, or receives SIGUSR1 (kill -USR1 PID).
local zt   = require "zt"
local comm = require "zt.comm"

local options = zt.cli {
  name = "flight", usage = "ztoolkit flight",
  about = "Explains from a run's flight record which rank waited for which.",
  positional = {{"run", "the run's folder, with flight/rank*.json in it"}},
  options = {
    {"last", 0, "number of last calls to show, per rank and axis", at_least = 0},
  },
}
local folder = options.run .. "/flight"

-- Returns one line for a call:
-- "     317  all_reduce of 1024 float32, done, 0.400 ms, queued 12.301 s before the record  REDUCE_GRAD 3"
local function call_text(call, read_ns)
  local took = call.ended_ns > 0 and ("%.3f ms"):format((call.ended_ns - call.started_ns) / 1e6) or "no end"
  local peer = call.peer >= 0 and (" peer %d"):format(call.peer) or ""
  return ("  %6d  %s of %d %s%s, %s, %s, queued %.3f s before the record  %s"):format(
    call.number, call.call, call.count, call.type, peer, call.stage, took, (read_ns - call.queued_ns) / 1e9, call.action)
end

local function print_last(flight)
  local ending = flight["end"] ~= "" and flight["end"] or flight.is_alive and "running" or "gone"
  print(("rank %d (process %d): %s"):format(flight.rank, flight.process, ending))
  for _, communicator in ipairs(flight.communicators) do
    local calls = communicator.calls
    print((" axis %s over %s, ranks %s"):format(communicator.axis, communicator.backend, table.concat(communicator.ranks, " ")))
    for place = math.max(1, #calls - options.last + 1), #calls do print(call_text(calls[place], flight.read_ns)) end
  end
end

local verdict, ranks = comm.verdict(folder)
print(verdict)
for _, rank in ipairs(options.last > 0 and ranks or {}) do
  print_last(zt.json.decode(zt.fs.read(("%s/rank%d.json"):format(folder, rank))))
end
