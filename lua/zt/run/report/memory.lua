--- The memory of a run in a report: planned beside measured, by kind.

local html = require "zt.run.report.html"
local overview = require "zt.run.report.overview"
local text = require "zt.text"

local MOST_RANKS = 16 -- rows of the table of ranks

local memory = {}

local function shown(bytes) return bytes and bytes >= 0 and text.bytes(bytes) or "-" end

-- Returns the ranks, from 0, with the most memory first.
local function fullest_first(ranks)
  local order, bytes = {}, {}
  for index, kinds in ipairs(ranks) do
    local total = kinds.total or {}
    order[index], bytes[index - 1] = index - 1, math.max(total.measured or -1, total.predicted or -1)
  end
  table.sort(order, function(a, b)
    if bytes[a] == bytes[b] then return a < b end
    return bytes[a] > bytes[b]
  end)
  return order
end

local function bar(bytes, most, class)
  local percent = most > 0 and 100 * math.max(0, bytes or 0) / most or 0
  return ('<span class="bar %s" style="width:%.2f%%"></span>'):format(class, percent)
end

local function table_of_kinds(kinds, most, color)
  local rows, names, elsewhere = {}, text.memory_kinds(kinds)
  for _, name in ipairs(names) do
    local line = kinds[name]
    local bars = elsewhere[name] and "" or ('<span class="bars %s" aria-hidden="true">'):format(color)
      .. bar(line.predicted, most, "planned") .. bar(line.measured, most, "measured") .. "</span>"
    rows[#rows + 1] = {name, shown(line.predicted), shown(line.measured), {html = bars}}
  end
  return html.table(rows, {"kind", "planned", "measured", {html = '<span class="key planned"></span> planned '
    .. ('<span class="key measured %s"></span> measured'):format(color)}}, "numbers memory")
end

local function table_of_ranks(ranks, order)
  local rows = {}
  for place = 1, math.min(#order, MOST_RANKS) do
    local total = ranks[order[place] + 1].total or {}
    rows[place] = {"rank " .. order[place], shown(total.predicted), shown(total.measured)}
  end
  local title = ("all %d ranks"):format(#order)
  if #order > MOST_RANKS then title = ("the %d fullest of %d ranks"):format(MOST_RANKS, #order) end
  return title, html.table(rows, {"rank", "planned", "measured"}, "numbers")
end

--- Returns the most bytes that the tables of kinds show, of all runs; 0 if no run has recorded its memory.
function memory.most(runs)
  local most = 0
  for _, run in ipairs(runs) do
    local ranks = run.summary and run.summary.memory or {}
    local fullest = fullest_first(ranks)[1]
    local kinds = fullest and ranks[fullest + 1] or {}
    local names, elsewhere = text.memory_kinds(kinds)
    for _, name in ipairs(names) do
      if not elsewhere[name] then most = math.max(most, kinds[name].predicted or 0, kinds[name].measured or 0) end
    end
  end
  return most
end

--- Returns the section of a run, with bars of which the longest has the bytes `most`.
function memory.section(run, most)
  local ranks = run.summary and run.summary.memory
  if not ranks or #ranks == 0 then return "<p>The run has recorded no memory, as it has no trainer.</p>" end
  local order = fullest_first(ranks)
  local all = run.record.ranks or #ranks
  local of = #ranks > 1 and ("Rank %d, the fullest of %d"):format(order[1], #ranks)
    or all > 1 and ("Rank 0 of %d; the others come with the end of the run"):format(all) or "The run's rank"
  local peak = (ranks[order[1] + 1].activations or {}).measured
  local activations = peak and peak >= 0 and "Activations are at their peak within a step"
    or "Activations, and so the total, come with the end of the run"
  local parts = {html.format("<p>%s. %s.</p>", of, activations),
                 table_of_kinds(ranks[order[1] + 1], most, overview.color(run))}
  if #ranks > 1 then
    local title, content = table_of_ranks(ranks, order)
    parts[3] = html.details("memory-" .. run.number, title, content)
  end
  return table.concat(parts, "\n")
end

return memory
