--- Writes a report: one HTML page about one run or several, which needs no other file and no network.

local controls = require "zt.run.report.controls"
local data = require "zt.run.report.data"
local fs = require "zt.fs"
local html = require "zt.run.report.html"
local memory = require "zt.run.report.memory"
local overview = require "zt.run.report.overview"
local pictures = require "zt.run.report.pictures"
local records = require "zt.run.records"
local resume = require "zt.run.report.resume"

local HERE = debug.getinfo(1, "S").source:match "^@(.*/)" or "./"
local MOST_BYTES = 4000 -- of a text that a run has logged
local MOST_TEXTS = 4 -- that are seen at once
local BESIDE = {memory = true, resume = true} -- sections whose runs stand beside each other if there is room
local SECTION = '<section id="%s"><h2>%s</h2>%s</section>'

local function section(id, title, content) return SECTION:format(id, html.escape(title), content) end

-- Returns a section with the same part of each run, part(run, argument). Leaves out runs whose part is nil, and an empty section.
local function of_each(runs, id, title, part, argument)
  local parts = {}
  for _, run in ipairs(runs) do
    local content = part(run, argument)
    if content then
      parts[#parts + 1] = #runs > 1 and ("<div><h3>%s</h3>%s</div>"):format(overview.named(run), content) or content
    end
  end
  if #parts == 0 then return "" end
  local content = table.concat(parts, "\n")
  return section(id, title, #runs > 1 and BESIDE[id] and '<div class="each">' .. content .. "</div>" or content)
end

local function names_row(runs, first)
  local head = {first}
  for index, run in ipairs(runs) do head[index + 1] = #runs == 1 and "value" or {html = overview.named(run)} end
  return head
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
    local parts = {}
    for index, row in ipairs(same) do parts[index] = html.format("<div><dt>%s</dt><dd>%s</dd></div>", row[1], row[2]) end
    local none = #same == 0 and "<p>The run has recorded no options.</p>" or ""
    return section("options", "Options", none .. '<dl class="options">' .. table.concat(parts, "\n") .. "</dl>")
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
      if #shown > MOST_BYTES then
        shown = shown:sub(1, MOST_BYTES):gsub("[\192-\255][\128-\191]*$", "") .. (" ... (%d bytes)"):format(#entry.text)
      end
      rows[#rows + 1] = {("step %d"):format(entry.step), name, {html = html.format('<div class="text">%s</div>', shown)},
                         order = entry.step}
    end
  end
  table.sort(rows, function(a, b)
    if a.order == b.order then return a[2] < b[2] end
    return a.order > b.order
  end)
  if #rows == 0 then return nil end
  local earlier = {}
  while #rows > MOST_TEXTS do table.insert(earlier, 1, table.remove(rows)) end
  local latest = html.table(rows, nil, "texts")
  if #earlier == 0 then return latest end
  return latest .. html.details("texts-" .. run.number, ("%d earlier texts"):format(#earlier), html.table(earlier, nil, "texts"))
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
  local rows = {
    {"command", {html = html.format("<code>%s</code>", resume.command_of(record))}},
    {"first started", record.begun or record.started or "-"},
    {"last started", record.started or "-"},
    {"ranks", ("%s (%s)"):format(tostring(record.ranks or "-"), tostring(record.launch or "-"))},
    {"mesh", record.mesh or "-"}, {"versions", versions_of(record)}, {"folder", run.path},
  }
  local parts = {html.table(rows, nil, "facts")}
  local listings = {{"program", "the model, the program and what it sends", run.summary and run.summary.report},
                    {"script", "the script", run.script}}
  for _, listing in ipairs(listings) do
    local id, title, content = listing[1] .. "-" .. run.number, listing[2], listing[3]
    if content then parts[#parts + 1] = html.details(id, title, html.format("<pre>%s</pre>", content)) end
  end
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
  local note = reload and (', <span id="watched">again every %g s while a run goes on</span>'):format(reload) or ""
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
    html.format("<title>%s - ztoolkit report</title>", title_of(runs)),
    "<style>", fs.read(HERE .. "page.css"), "</style></head><body>", head(runs, reload), "<main>",
    section("overview", "Overview", overview.section(runs)),
    section("charts", "Metrics", controls(runs)),
    #runs > 1 and options(runs) or "",
    of_each(runs, "texts", "Texts", texts),
    of_each(runs, "memory", "Memory", memory.section, memory.most(runs)),
    of_each(runs, "step", "A step", pictures.step),
    of_each(runs, "experts", "Experts", pictures.experts),
    of_each(runs, "resume", "Where to resume", resume.section),
    #runs == 1 and options(runs) or "",
    of_each(runs, "start", "How it was started", start),
    values(runs), "</main>",
    '<script type="application/json" id="data">', data.json(runs, reload), "</script>",
    "<script>", fs.read(HERE .. "scale.js"), fs.read(HERE .. "chart.js"), fs.read(HERE .. "page.js"), "</script></body></html>",
  }
  return table.concat(parts, "\n") .. "\n"
end
