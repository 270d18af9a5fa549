--- Counts how many cases have each feature: what the cases cover.
local draw_layout = require "draw.layout"

local counts = {}

-- Features that show in the code of a layer, by patterns.
local OF_CODE = {
  ["tiled layer"] = "tile = [1-9]", ["sliding window"] = "window = [1-9]", ["norm of heads"] = "qk_norm = true",
  ["bias of queries, keys and values only"] = "qkv_bias = true", ["scaled rotary angles"] = "rope_scaling =",
  ["adapters"] = "lora = {", ["some key heads at once"] = 'context%("%a+", [1-9]',
}

local function items_of(case, found)
  local uses = {}
  for _, item in ipairs(case.items) do
    if item.kind then found["layer " .. item.kind] = true end
    if item.is_local then found["layer as expert and elsewhere"] = true end
    if item.param then found["parameter of several layers"] = true end
    if item.again then
      uses[item.again] = (uses[item.again] or 1) + 1
      found["layer used " .. (uses[item.again] == 2 and "twice" or "three times or more")] = true
    end
    if item.kind == "mixture" and found.mixture then found["several routers"] = true end
    if item.kind == "mixture" then found.mixture = true end
    if item.kind == "mixture" and item.code:find "select =" then found["choice of experts of its own"] = true end
    for feature, pattern in pairs(OF_CODE) do
      if item.code and item.code:find(pattern) then found[feature] = true end
    end
    local method = case.cut and item.code and item.code:match 'context%("(%a+)"'
    if method then found["tokens in shares, by " .. method] = true end
  end
  found.mixture = nil
  found["tied head"] = case.is_tied
  found["loss of a policy"] = case.policy ~= nil
  local mean = case.policy and case.policy.loss:match 'mean = "(%a+)"'
  if mean then found["loss of a policy by a mean, " .. mean] = true end
  found["ratios of whole answers"] = case.policy and case.policy.loss:find "level" ~= nil
  found["tiled head"] = case.head_tile ~= nil
  found["tokens of the residual stream in shares"] = case.cut and case.cut.sequence
  if case.cut then found["layout of tokens " .. case.cut.layout] = true end
  found["learned positions"] = case.positions ~= nil
  found["packed documents"] = case.packed
end

local function layout_of(layout, found)
  found["ranks " .. draw_layout.ranks(layout)] = true
  for _, axis in ipairs(layout.axes or {}) do
    if axis[2] > 1 then found["axis " .. axis[1]] = true end
  end
  if layout.split then
    local schedule = layout.split.schedule
    found["schedule " .. (schedule.name or schedule.costs and "searched" or "random")] = true
  end
  for key, value in pairs(layout.shard or {}) do
    if key == "stage" then found["stage " .. value] = true else found["shard " .. key] = true end
  end
  for _, key in ipairs{"recompute", "split_backward", "pairs", "joined", "backend", "selective", "overlap"} do
    found[key] = layout[key] ~= nil
  end
  for key, value in pairs(layout.move or {}) do found["move " .. key .. (value == "nvme" and " to files" or "")] = true end
end

local function features_of(case)
  local found = {}
  items_of(case, found)
  layout_of(case.layout, found)
  if case.second then
    found["checkpoint, loaded on another layout"] = true
    layout_of(case.second, found)
  end
  for _, list in ipairs(case.events) do
    for _, name in ipairs(list) do
      if name ~= "checkpoint" then found["event " .. name] = true end
    end
  end
  found["precision " .. case.precision], found["optimizer " .. case.optimizer[1]] = true, true
  found["by hand"], found["clipping"], found["frozen in part"] = case.by_hand, case.clip > 0, #case.frozen > 0
  found["gradients changed by an action"] = case.scaled ~= nil
  found["ragged micro-batches"], found["micro-batch without valid tokens"] = case.is_ragged, #case.empty > 0
  found["finite differences"] = case.finds_differences
  return found
end

--- Returns a text with one line per feature: its number of cases.
function counts.text(cases)
  local numbers, names = {}, {}
  for _, case in ipairs(cases) do
    for name, has in pairs(features_of(case)) do
      if has then
        if not numbers[name] then names[#names + 1] = name end
        numbers[name] = (numbers[name] or 0) + 1
      end
    end
  end
  table.sort(names)
  local lines = {("%6d  cases"):format(#cases)}
  for _, name in ipairs(names) do lines[#lines + 1] = ("%6d  %s"):format(numbers[name], name) end
  return table.concat(lines, "\n")
end

return counts
