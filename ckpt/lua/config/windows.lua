--- Converts between the sliding windows of a config.json of Hugging Face's and nn.gpt's option window. In both, a token with a
-- window n sees itself and the n - 1 tokens before it.

local Reader = require "zt.ckpt.config_reader"
local fail = require "zt.fail"

local windows = {}

local FULL, SLIDING = "full_attention", "sliding_attention"
local FIRST_WITH_WINDOW = 28 -- transformers' default of max_window_layers

-- Returns the window of a file. 0 if there is none, or if no sequence is longer.
local function width_of(reader, seq)
  local width = reader:size("sliding_window", Reader.MOST_ROWS, seq)
  return width < seq and width or 0
end

--- Returns the window of all blocks of a Mistral or a Mixtral, or nil.
function windows.of_all(reader, seq)
  local width = width_of(reader, seq)
  return width > 0 and width or nil
end

-- Returns the types of attention that a file lists by block, or nil.
local function types_of(reader, layers)
  return reader:get("layer_types", "table", ("a list of %d times '%s' or '%s'"):format(layers, FULL, SLIDING), nil, function(list)
    for _, each in ipairs(list) do
      if each ~= FULL and each ~= SLIDING then return false end
    end
    return #list == layers
  end)
end

--- Returns the windows of a Qwen: nil, a number for all blocks, or a list by block.
function windows.by_block(reader, seq, layers)
  local types, is_on = types_of(reader, layers), reader:truth("use_sliding_window", false)
  local first = reader:get("max_window_layers", "number", "a whole number of at least 0", FIRST_WITH_WINDOW,
    function(x) return x >= 0 and x == math.floor(x) end)
  local list, count = {}, 0
  for block = 0, layers - 1 do
    local is_sliding = types and types[block + 1] == SLIDING or not types and is_on and block >= first
    list[block + 1] = is_sliding and 1 or 0
    count = count + list[block + 1]
  end
  if count == 0 then return nil end
  if not is_on or reader.config.sliding_window == nil then
    fail("%s says that %d of %d layers have a sliding window, but 'use_sliding_window' = %s and 'sliding_window' = %s do not say "
      .. "which: get the file again or correct it", reader.path, count, layers, tostring(is_on),
      tostring(reader.config.sliding_window))
  end
  local width = width_of(reader, seq)
  if width == 0 then return nil end
  if count == layers then return width end
  for block, is_sliding in ipairs(list) do list[block] = is_sliding * width end
  return list
end

--- Returns which blocks have a window, "none", "all", "some" or "different" (several windows), the window if there is one, and
-- the windows by block. o: complete options of nn.gpt.
function windows.kind(o)
  local list, width, count, is_one = {}, 0, 0, true
  for block = 1, o.layers do
    list[block] = type(o.window) == "table" and o.window[block] or o.window
    if list[block] > 0 then
      is_one = is_one and (count == 0 or list[block] == width)
      width, count = list[block], count + 1
    end
  end
  if not is_one then return "different", nil, list end
  return count == 0 and "none" or count == o.layers and "all" or "some", count > 0 and width or nil, list
end

--- Adds the window of all blocks to the config.json of a Mistral or a mixture.
function windows.write_of_all(config, o)
  local _, width = windows.kind(o)
  config.sliding_window = width
end

--- Adds the windows to the config.json of a Qwen.
function windows.write_by_block(config, o)
  local _, width, list = windows.kind(o)
  config.use_sliding_window, config.sliding_window = width ~= nil, width
  if not width then return end
  config.layer_types = {}
  for block, each in ipairs(list) do
    config.layer_types[block] = each > 0 and SLIDING or FULL
    if each > 0 and not config.max_window_layers then config.max_window_layers = block - 1 end
  end
end

return windows
