--- The charts of a report before the page's script fills them: the controls and a figure per chart.

local data = require "zt.run.report.data"
local html = require "zt.run.report.html"
local overview = require "zt.run.report.overview"

local HINT = "Drag over steps to zoom, click twice to go back. On a chart that has the focus, arrow keys move the cursor, + and "
  .. "- zoom, and Escape goes back."
local NO_SCRIPT = "<noscript><p>The charts need JavaScript. The numbers are in the table of values below.</p></noscript>"

local function choice(name, label, options)
  return html.format('<label>%s <select name="%s" autocomplete="off">', label, name) .. options .. "</select></label>"
end

local function form(runs, names)
  local options = {}
  for index, name in ipairs(names) do options[index] = html.format("<option>%s</option>", name) end
  local list = table.concat(options)
  local parts = {
    '<form id="controls" onsubmit="return false">', choice("metric", "metric", list),
    choice("also", "and", '<option value="">nothing</option>' .. list),
    '<label><input type="checkbox" name="log"> log scale</label>',
    '<label>smoothing <input type="range" name="smooth" min="0" max="0.99" step="0.01">',
    '<output name="smooth_value"></output></label>',
    '<button type="button" name="reset_zoom">reset zoom</button>',
  }
  for index, run in ipairs(#runs > 1 and runs or {}) do
    parts[#parts + 1] = ('<label><input type="checkbox" name="run" value="%d" checked>%s</label>'):format(
      index - 1, overview.named(run))
  end
  parts[#parts + 1] = "</form>"
  return table.concat(parts, "\n")
end

local function figure(attributes)
  return ('<figure class="chart"%s><figcaption></figcaption><svg tabindex="0" role="application"></svg>'):format(attributes)
    .. '<output class="legend" aria-live="polite"></output></figure>'
end

--- Returns the controls and the figures.
return function(runs)
  local names, small = data.names(runs), {}
  if #names == 0 then return "<p>There are no numbers to draw: run:log(step, values) records them.</p>" end
  for index, name in ipairs(data.fixed(names)) do small[index] = figure(html.format(' data-metric="%s"', name)) end
  return NO_SCRIPT .. form(runs, names) .. html.format('<p class="hint">%s</p>', HINT) .. figure "" .. '<div class="charts">'
    .. table.concat(small, "\n") .. "</div>"
end
