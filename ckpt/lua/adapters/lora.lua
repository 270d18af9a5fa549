--- The adapters of a model that nn.gpt or moe.gpt has made with the option `lora`: by the model's options, and by the names and
-- shapes of its tensors.

local lora = {}

local ALPHA, SCALE = 32, "alpha/r" -- defaults of the option

--- Returns the beginning of the name of an adapter's two matrices, "blocks.0.attention.qkv.lora.q", from the name of one of them;
-- nil for any other name.
function lora.adapter_of(name) return name:match "^(.*lora%.[%w_]+)%.[ab]$" end

--- Returns whether one of a list of tensors or parameters, {name =, ...}, is of an adapter.
function lora.is_in(tensors)
  for _, tensor in ipairs(tensors) do
    if lora.adapter_of(tensor.name) then return true end
  end
  return false
end

--- Returns whether scales are divided by the root of the rank.
function lora.is_by_root(options) return (options.lora.scale or SCALE) == "alpha/sqrt(r)" end

--- Returns the factor of B A.
function lora.scale(alpha, rank, is_by_root) return alpha / (is_by_root and math.sqrt(rank) or rank) end

-- Returns the first of the rows that an adapter changes. rows: how many; total: those of the matrix.
local function first_of(target, rows, total)
  if target == "k" then return total - 2 * rows end -- queries, keys and values, as many of these as of those
  if target == "v" or target == "up_proj" then return total - rows end
  return 0
end

-- Returns the adapter whose matrices have names that begin with `name`.
local function adapter_of(name, options, shapes)
  local path, target = name:match "^(.*)lora%.([%w_]+)$"
  local matrix = path .. "weight"
  if not shapes[matrix] and path == "head." then matrix = "embedding.weight" end -- of a tied model
  local block, alphas = path:match "^blocks%.(%d+)%.", options.lora.alphas or {}
  local rank, rows = shapes[name .. ".a"][1], shapes[name .. ".b"][1]
  local alpha = block and alphas[("blocks.%s.%s"):format(block, target)] or alphas[target] or options.lora.alpha or ALPHA
  return {
    name = name, target = target, block = block and tonumber(block), parameter = matrix, rank = rank, alpha = alpha,
    scale = lora.scale(alpha, rank, lora.is_by_root(options)), first = first_of(target, rows, shapes[matrix][1]), rows = rows,
  }
end

--- Returns the adapters, a list of {name =, target =, block =, parameter = the matrix, first =, rows = those that it changes,
-- rank =, alpha =, scale =}, sorted by block, matrix and rows. tensors: a list of {name =, shape =}, those of the model.
function lora.list(options, tensors)
  local shapes, list = {}, {}
  for _, tensor in ipairs(tensors) do shapes[tensor.name] = tensor.shape end
  for name in pairs(shapes) do
    local adapter = name:find "%.a$" and lora.adapter_of(name)
    if adapter then list[#list + 1] = adapter_of(adapter, options, shapes) end
  end
  table.sort(list, function(one, other)
    if one.block ~= other.block then return (one.block or math.huge) < (other.block or math.huge) end
    if one.parameter ~= other.parameter then return one.parameter < other.parameter end
    return one.first < other.first
  end)
  return list
end

return lora
