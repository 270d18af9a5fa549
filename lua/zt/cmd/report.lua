-- ztoolkit report: writes one HTML page about runs, also while they go on or after they were killed.
--
--   ztoolkit report runs/gpt                            writes runs/gpt/report.html
--   ztoolkit report runs/a runs/b --out compared.html   the runs side by side
--   ztoolkit report runs/gpt --watch                    writes it again every 5 s while the run goes on
local zt      = require "zt"
local command = require "zt.command"
local fail    = require "zt.fail"
local page    = require "zt.run.report.page"
local read    = require "zt.run.report.reader"
local records = require "zt.run.records"

local DEFAULT_SECONDS = 5

local options = zt.cli {
  name = "report", usage = "ztoolkit report",
  about = "Writes one HTML page about runs, which needs no other file and no network: charts of all metrics, options and what "
    .. "differs, memory, a step, the load of experts, logged texts, and where to resume. Also while a run goes on, or after "
    .. "it was killed.",
  positional = {{"runs", "the folders of one run or more", at_least = 1}},
  options = {
    {"out", nil, "the file to write; by default report.html in the folder of the first run", type = "string"},
    {"watch", false, "write the page again while a run goes on; the page in a browser follows"},
    {"every", nil, ("seconds between two pages, with --watch (%d)"):format(DEFAULT_SECONDS), type = "number", at_least = 0.1},
  },
}

-- Returns the runs as they are now, and whether one goes on.
local function read_all(names)
  local runs, goes_on = {}, false
  for number, path in ipairs(options.runs) do
    runs[number] = read(path, names[number], number)
    goes_on = goes_on or runs[number].status.state == "running"
  end
  return runs, goes_on
end

-- Writes the page again and again until no run goes on. Waits for at least as long as a page takes, so that the disk and a core
-- are free half of the time.
local function watch(names, out, every)
  local runs, goes_on = read_all(names)
  while goes_on do
    local begin = zt.now()
    zt.write_file(out, page(runs, every))
    io.stdout:write(("%s  wrote %s\n"):format(os.date "%H:%M:%S", out))
    io.stdout:flush()
    zt.sleep(math.max(every, zt.now() - begin))
    runs, goes_on = read_all(names)
  end
  return runs
end

command("report", function()
  if options.every and not options.watch then fail "option '--every' has no effect without --watch: add --watch" end
  local out = options.out or options.runs[1]:gsub("(.)/+$", "%1") .. "/report.html"
  local names = records.names(options.runs)
  local runs = options.watch and watch(names, out, options.every or DEFAULT_SECONDS) or read_all(names)
  zt.write_file(out, page(runs))
  print("wrote " .. out .. (options.watch and ": no run goes on" or ""))
end)
