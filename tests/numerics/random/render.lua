--- Makes the Lua script of a case. The ranks run this script, and a failing case is printed as it.
local draw_layout, draw_schedule = require "draw.layout", require "draw.schedule"

local render = {}

local function is_list(value) return value[1] ~= nil or next(value) == nil end

-- Lua code of a plain value; keys in order.
local function code_of(value)
  if type(value) == "string" then return (("%q"):format(value):gsub("\\\n", "\\n")) end
  if type(value) == "number" then return ("%.14g"):format(value) end
  if type(value) ~= "table" then return tostring(value) end
  local parts = {}
  if is_list(value) then
    for i, each in ipairs(value) do parts[i] = code_of(each) end
  else
    local keys = {}
    for key in pairs(value) do keys[#keys + 1] = key end
    table.sort(keys)
    for i, key in ipairs(keys) do parts[i] = key .. " = " .. code_of(value[key]) end
  end
  return "{" .. table.concat(parts, ", ") .. "}"
end

-- By name, the item that an `again` names.
local function by_name(items)
  local found = {}
  for _, item in ipairs(items) do
    if item.name then found[item.name] = item end
  end
  return found
end

-- The positions after which a list of a partition may cut: counts from the model's begin.
local function places_to_cut(case)
  local places, at = {0, 1}, 1
  local items = by_name(case.items)
  for _, item in ipairs(case.items) do
    if not item.param then
      local used = item.again and items[item.again] or item
      for i = 1, used.positions - 1 do places[#places + 1] = at + i end
      at = at + used.positions
      places[#places + 1] = at
    end
  end
  for _ = 1, case.policy and 2 or 1 do -- the head and the loss of a policy
    at = at + 1
    places[#places + 1] = at
  end
  return places, at
end

local function partition_of(case, split, stages)
  if split.partition ~= "list" then return split.partition end
  local places, all = places_to_cut(case)
  local cuts = {}
  for i = 1, stages - 1 do cuts[i] = places[1 + math.floor(split.cuts[i] * #places)] end
  table.sort(cuts)
  local sizes, before = {}, 0
  for i = 1, stages - 1 do
    sizes[i], before = cuts[i] - before, cuts[i]
  end
  sizes[stages] = all - before
  return sizes
end

local function split_code(case, layout)
  local split, ranks = layout.split, draw_layout.size(layout, "pp")
  local schedule, chunks = split.schedule, draw_schedule.chunks(split.schedule, ranks)
  local text = code_of(schedule.name)
  if not schedule.name then
    text = "pipe.schedule.from_text(" .. code_of(draw_schedule.text(schedule, ranks, layout.micro_batches)) .. ")"
  end
  local partition = code_of(partition_of(case, split, ranks * chunks))
  return ("pipe.split{axis = mesh.pp, partition = %s, schedule = %s}"):format(partition, text)
end

local function passes_code(case, layout)
  local passes = {}
  if layout.split then passes[1] = split_code(case, layout) end
  if layout.recompute then passes[#passes + 1] = ("zt.recompute{every = %d}"):format(layout.recompute) end
  if layout.split_backward then passes[#passes + 1] = "zt.split_backward()" end
  if layout.pairs then passes[#passes + 1] = "zt.pair_micro_batches()" end
  if #passes > 0 then return ("function(%s) return %s end"):format(layout.split and "mesh" or "", table.concat(passes, ", ")) end
end

local function layout_lines(case, name, layout, add)
  local head = {}
  for _, key in ipairs{"axes", "micro_batches", "eval_micro_batches", "joined", "shard", "lua_reduce", "backend",
    "selective", "overlap", "move"} do
    if layout[key] then head[#head + 1] = key .. " = " .. code_of(layout[key]) end
  end
  local passes = passes_code(case, layout)
  if not passes then return add("  %s = {%s},", name, table.concat(head, ", ")) end
  add("  %s = {%s,", name, table.concat(head, ", "))
  add("    passes = %s},", passes)
end

-- The layers that are used several times or are looked at by others are local variables; the others stand in the list.
local function model_lines(case, add)
  local used = {}
  for _, item in ipairs(case.items) do used[item.again or item.is_local and item.name or ""] = true end
  add(case.cut and "  model = function(mesh, layout)" or "  model = function(mesh)")
  if case.cut then
    add("    local tp, sp, context, recompute, overlap = layers.cut(mesh, %s, layout)", code_of(case.cut))
  end
  local cut = case.cut and ", tensor = tp, sequence_parallel = sp" or ""
  local is_tied = case.is_tied
  local first = (case.positions and ", positions = %d" or ""):format(case.positions)
    .. (case.dropout and ", dropout = %.14g" or ""):format(case.dropout) .. cut
  local embedding = ("nn.embedding{vocab = %d, hidden = %d, std = 0.5%s}"):format(case.vocab, case.hidden, first)
  if is_tied then add("    local embedding = %s", embedding) end
  for _, item in ipairs(case.items) do
    if item.param then add("    local %s = %s", item.param, item.code)
    elseif used[item.name] then add("    local %s = %s", item.name, item.code) end
  end
  add("    return nn.sequential{seed = %d,", case.seed)
  add('      {"embedding", %s},', is_tied and "embedding" or embedding)
  for _, item in ipairs(case.items) do
    local name = item.again or item.name
    if name then
      add('      {"%s", %s},', name, used[name] and name or item.code)
    end
  end
  local head = ("vocab = %d, hidden = %d, norm = %q, %s%s%s"):format(case.vocab, case.hidden, case.norm,
    is_tied and "tied = embedding" or "std = 0.4", case.head_tile and (", tile = %d"):format(case.head_tile) or "", cut)
  if case.policy then
    add('      {"head", nn.lm_logprobs{%s, %s}},', head, case.policy.head)
    add('      {"policy", require("zt.rlhf").loss.grpo{%s}}}', case.policy.loss)
  else
    add('      {"head", nn.lm_loss{%s}}}', head)
  end
  add "  end,"
end

local function frozen_patterns(case)
  local known, patterns = {}, {}
  for _, item in ipairs(case.items) do
    if item.name then known[item.name] = true end
    for _, name in ipairs(item.needs or {}) do known[name] = true end
  end
  for _, each in ipairs(case.frozen) do
    if known[each.item] then patterns[#patterns + 1] = each.pattern end
  end
  return patterns
end

--- Returns the script. `notes`: lines of a comment at its top.
function render.script(case, notes)
  local lines = {}
  local function add(form, ...) lines[#lines + 1] = select("#", ...) > 0 and form:format(...) or form end
  for _, note in ipairs(notes or {}) do add("%s", "-- " .. note) end
  add 'local random = dofile "tests/numerics/random/case.lua"'
  add "local zt, moe, nn, optim, pipe, layers = random.names()"
  add "return random.case{"
  add("  seed = %d, vocab = %d, steps = %d, precision = %q, by_hand = %s, clip = %s,", case.seed, case.vocab, case.steps,
    case.precision, case.by_hand, case.clip)
  if case.scaled then add("  scaled = %d,", case.scaled) end
  add("  optimizer = %s, frozen = %s,", code_of(case.optimizer), code_of(frozen_patterns(case)))
  add("  rows = %s, seq = %s, empty = %s, reference_in_one = %s,", code_of(case.rows), code_of(case.seq), code_of(case.empty),
    case.reference_in_one)
  add("  events = %s, mistake = %s,", code_of(case.events), code_of(case.mistake))
  if case.packed or case.ignored then add("  packed = %s, ignored = %s,", case.packed, code_of(case.ignored)) end
  if case.fault then add("  fault = %q,", case.fault) end
  model_lines(case, add)
  layout_lines(case, "layout", case.layout, add)
  if case.second then layout_lines(case, "second", case.second, add) end
  add "}"
  return table.concat(lines, "\n") .. "\n"
end

return render
