--- Writes a report: one HTML page about one run or several, which needs no other file and no network.

local data = require "zt.run.report.data"
local fs = require "zt.fs"
local html = require "zt.run.report.html"
local memory = require "zt.run.report.memory"
local overview = require "zt.run.report.overview"
local pictures = require "zt.run.report.pictures"
local records = require "zt.run.records"
local resume = require "zt.run.report.resume"

local HERE = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"
local MOST_CHARACTERS = 4000 -- of a text that a run has logged
local SECTION = '<section id="%s"><h2>%s</h2>%s</section>'

local function section(id, title, content) return SECTION:format(id, html.escape(title), content) end

-- Returns a section with the same part of each run; a run whose part is nil is left out. nil if no run has one.
local function of_each(runs, id, title, part)
  local parts = {}
  for _, run in ipairs(runs) do
    local content = part(run)
    if content then
      parts[#parts + 1] = #runs > 1 and ("<h3>%s</h3>%s"):format(overview.named(run), content) or content
    end
  end
  return #parts > 0 and section(id, title, table.concat(parts, "\n")) or ""
end

local function names_row(runs, first)
  local head = {first}
  for index, run in ipairs(runs) do head[index + 1] = {html = overview.named(run, #runs == 1)} end
  return head
end

local function charts(runs)
  if #data.names(runs) == 0 then
    return section("charts", "Metrics", "<p>There are no numbers to draw: run:log(step, values) records them.</p>")
  end
  return section("charts", "Metrics", '<noscript><p>The charts need JavaScript. The numbers are in the table of values below.</p>'
    .. "</noscript><div id=\"plots\"></div>")
end

-- Returns the table of the last and least values of all metrics.
local function values(runs)
  local rows = {}
  for _, name in ipairs(data.names(runs)) do
    local last, least = {name}, {name .. ", least"}
    for index, run in ipairs(runs) do
      local series = run.metrics[name]
      local gaps = series and series.gaps > 0 and (" (%d not finite)"):format(series.gaps) or ""
      last[index + 1] = series and series.last and ("%.10g%s"):format(series.last, gaps) or "-"
      least[index + 1] = series and series.least and ("%.10g at %d"):format(series.least, series.least_step) or "-"
    end
    rows[#rows + 1] = last
    if name:find "loss" then rows[#rows + 1] = least end
  end
  if #rows == 0 then return "" end
  return section("values", "Values", html.details("all-values", ("the last value of %d metrics"):format(#data.names(runs)),
                 html.table(rows, names_row(runs, "metric"), "numbers")))
end

local function options(runs)
  local differing, same = records.options_of(runs)
  if #runs == 1 then
    if #same == 0 then return section("options", "Options", "<p>The run has recorded no options.</p>") end
    return section("options", "Options", html.table(same, {"option", "value"}, "options"))
  end
  local first = #differing > 0 and html.table(differing, names_row(runs, "option"), "options")
    or "<p>The runs have the same options.</p>"
  local rest = #same > 0 and html.details("same-options", ("the %d options that are the same"):format(#same),
                                          html.table(same, names_row(runs, "option"), "options")) or ""
  return section("options", "What differs", first .. rest)
end

-- Returns the table of the texts that a run has logged, the latest first; nil if there are none.
local function texts(run)
  local rows = {}
  for name, list in pairs(run.texts) do
    for _, entry in ipairs(list) do
      local shown = entry.text
      if #shown > MOST_CHARACTERS then
        shown = shown:sub(1, MOST_CHARACTERS):gsub("[\192-\255][\128-\191]*$", "") .. (" ... (%d bytes)"):format(#entry.text)
      end
      rows[#rows + 1] = {("step %d"):format(entry.step), name, {html = html.format('<div class="text">%s</div>', shown)},
                         order = entry.step}
    end
  end
  table.sort(rows, function(a, b)
    if a.order == b.order then return a[2] < b[2] end
    return a.order > b.order
  end)
  return #rows > 0 and html.table(rows, nil, "texts") or nil
end

local function versions_of(record)
  local parts = {}
  for _, name in ipairs{"ztoolkit", "libtorch", "compiler", "build_id"} do
    local version = (record.versions or {})[name]
    if version then parts[#parts + 1] = name:gsub("_", " ") .. " " .. tostring(version) end
  end
  return table.concat(parts, ", ")
end

-- Returns how a run was started.
local function start(run)
  local record = run.record
  local rows = {{"command", {html = html.format("<code>%s</code>", resume.command_of(record))}}, {"started", record.started or "-"},
                {"ranks", ("%s, %s"):format(tostring(record.ranks or "-"), tostring(record.launch or "-"))},
                {"mesh", record.mesh or "-"}, {"versions", versions_of(record)}, {"folder", run.path}}
  local parts = {html.table(rows, nil, "facts")}
  local report = run.summary and run.summary.report
  if report then parts[#parts + 1] = html.details("program-" .. run.number, "the model, the program and what it sends",
                                                  html.format("<pre>%s</pre>", report)) end
  if run.script then parts[#parts + 1] = html.details("script-" .. run.number, "the script",
                                                      html.format("<pre>%s</pre>", run.script)) end
  return table.concat(parts, "\n")
end

local function title_of(runs)
  local names = {}
  for index, run in ipairs(runs) do names[index] = run.name end
  return #names <= 3 and table.concat(names, ", ") or ("%d runs"):format(#names)
end

local function head(runs, reload)
  local title = title_of(runs)
  local badge = #runs == 1 and " " .. overview.badge(runs[1]) or ""
  local note = reload and html.format(', again every %s s while <span id="watched">the run goes on</span>', ("%g"):format(reload)) or ""
  return html.format("<header><h1>%s", title) .. badge .. "</h1>" .. html.format(
    '<p class="written">ztoolkit report, written at <time>%s</time>', os.date "!%Y-%m-%d %H:%M:%S UTC") .. note .. "</p></header>"
end

--- Returns the page about runs of zt.run.report.reader. `reload` is the number of seconds after which a page that is watched is
--- written again, or nil.
return function(runs, reload)
  local parts = {
    "<!DOCTYPE html>", '<html lang="en"><head><meta charset="utf-8">',
    '<meta name="viewport" content="width=device-width, initial-scale=1">', '<meta name="color-scheme" content="light dark">',
    '<link rel="icon" href="data:,">',
    html.format("<title>%s - ztoolkit report</title>", title_of(runs)), "<style>", fs.read(HERE .. "page.css"), "</style></head><body>",
    head(runs, reload), "<main>", section("overview", "Overview", overview.section(runs)), charts(runs),
    #runs > 1 and options(runs) or "", of_each(runs, "texts", "Texts", texts), of_each(runs, "memory", "Memory", memory),
    of_each(runs, "step", "A step", pictures.step), of_each(runs, "experts", "Experts", pictures.experts),
    of_each(runs, "resume", "Where to resume", resume.section), #runs == 1 and options(runs) or "",
    of_each(runs, "start", "How it was started", start), values(runs), "</main>",
    '<script type="application/json" id="data">', data.json(runs, reload), "</script>",
    "<script>", fs.read(HERE .. "scale.js"), fs.read(HERE .. "chart.js"), fs.read(HERE .. "page.js"), "</script></body></html>",
  }
  return table.concat(parts, "\n") .. "\n"
end
