--- The samples of a call of `generate`: input_ids and attention_mask as prompts without padding.

local check = require "zt.check"
local fail = require "zt.fail"

local generation_samples = {}

local NAME = "engine:generate"

local function is_integer(value) return type(value) == "number" and value == math.floor(value) and math.abs(value) < 2 ^ 53 end

local function got(value)
  local first = type(value) == "table" and next(value)
  if first == nil then return "an empty list" end
  if type(first) == "number" and not check.is("list", value) then return "a list with holes" end
  return check.type_name(value)
end

-- Returns a tensor or a list as a list of lists of integers. `path` names it in messages; `is_mask`: true and false are right.
local function rows_of(path, value, is_mask)
  local is_tensor = check.is("tensor", value)
  if is_tensor and value:dim() ~= 2 then
    fail("%s must have the shape [samples, tokens], got %d dimensions", path, value:dim())
  end
  local dtype = is_tensor and value:dtype() or nil
  if is_tensor and not is_mask and dtype ~= "int64" then
    fail("%s must be an int64 tensor [samples, tokens], got one of %s: give tensor:to(\"int64\")", path, dtype)
  end
  local rows = is_tensor and value:tolist() or value
  if not check.is("list", rows) or #rows == 0 then
    fail("%s must be an int64 tensor [samples, tokens] or a list of lists, got %s", path, got(value))
  end
  for place, row in ipairs(rows) do
    if not check.is("list", row) or #row == 0 then
      fail("%s[%d] must be a list of at least one token, got %s", path, place, got(row))
    end
    for _, token in ipairs(row) do
      if not is_integer(token) and not (is_mask and type(token) == "boolean") then
        fail("%s[%d] holds %s, where an integer is needed", path, place,
             type(token) == "string" and "'" .. token .. "'" or tostring(token))
      end
    end
  end
  return rows
end

local function is_text(mark) return mark ~= 0 and mark ~= false end

-- Returns the tokens of a sample without padding, and whether padding lies between them.
local function unpadded(place, row, mask)
  if not mask then return row, false end
  if #mask ~= #row then
    fail("%s.attention_mask[%d] has %d numbers, and the sample %d tokens: give one per token", NAME, place, #mask, #row)
  end
  local tokens, last, has_gap = {}, nil, false
  for at, mark in ipairs(mask) do
    if is_text(mark) then
      has_gap = has_gap or last ~= nil and last ~= at - 1
      tokens[#tokens + 1], last = row[at], at
    end
  end
  if #tokens == 0 then fail("%s.attention_mask[%d] leaves no token of the sample", NAME, place) end
  return tokens, has_gap
end

-- Returns masks by the padding token, as transformers makes them; nil if the token is not known or ends answers. At the end of a
-- sample, transformers would go on after padding.
local function masks_of(rows, pad, ends)
  for _, token in ipairs(ends) do
    if token == pad then return nil end
  end
  if not pad then return nil end
  local masks = {}
  for place, row in ipairs(rows) do
    if row[#row] == pad then
      fail("%s.input_ids[%d] ends with pad_token_id = %d, as text or as padding: give attention_mask", NAME, place, pad)
    end
    masks[place] = {}
    for at, token in ipairs(row) do masks[place][at] = token ~= pad and 1 or 0 end
  end
  return masks
end

-- Returns whether some layer has a window: `window` is a number, or a list of a number per layer; 0 is none.
local function has_window(window)
  for _, each in ipairs(type(window) == "table" and window or {window}) do
    if each ~= 0 then return true end
  end
  return false
end

-- Fails for padding between tokens where it has an effect in transformers: it is left out here.
local function check_gap(place, o, model)
  local why
  local has_options, options = pcall(function() return model.options end)
  if (o.repetition_penalty or 1) ~= 1 then why = "repetition_penalty counts"
  elseif not has_options or type(options) ~= "table" then why = "layers of the script may count"
  elseif has_window(options.window) then why = "the window of attention counts" end
  if not why then return end
  fail("%s: sample %d has padding between its tokens, which %s in transformers: move the padding to the begin, or give "
    .. "attention_mask with 1 for these tokens if they are text", NAME, place, why)
end

--- Returns whether the mask of a call, a tensor or lists, has padding. Fails unless it has the shape of `tokens`, a tensor.
function generation_samples.has_padding(call, mask, tokens)
  local rows, has_padding = rows_of(call .. ".attention_mask", mask, true), false
  for _, row in ipairs(rows) do
    if #rows ~= tokens:size(0) or #row ~= tokens:size(1) then
      fail("%s.attention_mask must have the shape of input_ids, [%d, %d]: give one number per token", call, tokens:size(0),
           tokens:size(1))
    end
    for _, mark in ipairs(row) do has_padding = has_padding or not is_text(mark) end
  end
  return has_padding
end

--- Returns the samples as lists of tokens, with padding and without it, and the tokens of the longest one with padding. `o` has
-- input_ids and may have attention_mask; `pad` is the token of padding or nil, `ends` are the tokens that end answers. Padding
-- between tokens of a sample is left out, as if it were at the begin.
function generation_samples.read(o, pad, ends, model)
  local rows, mask = rows_of(NAME .. ".input_ids", o.input_ids), o.attention_mask
  local masks = mask ~= nil and rows_of(NAME .. ".attention_mask", mask, true) or masks_of(rows, pad, ends)
  if masks and #masks ~= #rows then
    fail("%s.attention_mask has %d samples, and input_ids %d: give one per sample", NAME, #masks, #rows)
  end
  local prompts, width = {}, 0
  for place, row in ipairs(rows) do
    local tokens, has_gap = unpadded(place, row, masks and masks[place])
    if has_gap then check_gap(place, o, model) end
    prompts[place], width = tokens, math.max(width, #row)
  end
  return rows, prompts, width
end

return generation_samples
