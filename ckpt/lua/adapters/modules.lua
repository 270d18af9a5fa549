--- The modules of Hugging Face's that LoRA may change, as rows of the parameters of moe.gpt, and the targets of nn.gpt's option
-- `lora`, which are such rows, too.

local core = require "zt.core"
local fail = require "zt.fail"
local huggingface = require "zt.ckpt.huggingface"
local mixtures = require "zt.ckpt.mixtures"
local model_head = require "zt.ckpt.config.model_head"
local names = require "zt.ckpt.names"
local text = require "zt.text"

local Modules = {}
Modules.__index = Modules

--- The name of the head's weight in all language models, and of our embedding.
Modules.HEAD, Modules.EMBEDDING = "lm_head.weight", "embedding.weight"

-- Returns the map of a model's names, and its complete options. place: whose options they are, for messages.
local function map_of(options, place)
  local o = huggingface.complete(options)
  if o.seq == 0 then o.seq = 1 end -- names do not depend on it
  if o.head == "value" then o.tied = false end -- it shares nothing with the embedding
  local is_right, _, form = pcall(huggingface.config, o)
  if is_right then return names.map(form, o), o end
  fail("an adapter names the modules of a family of Hugging Face's, and %s is of none that is known: its options (norm, "
    .. "position, activation, biases, experts) are those of no GPT-2, Llama, Mistral, Qwen2, Qwen3, Mixtral or Qwen3-MoE", place)
end

-- Returns the parts of a map by the names of their tensors, {name = {name =, parameter =, first =, rows =, columns = or nil,
-- ...}}.
local function parts_of(map)
  local parts = {}
  for _, entry in ipairs(map) do
    for _, part in ipairs(entry.parts) do
      parts[part.name] = {name = part.name, parameter = entry.name, first = part.first, rows = part.rows, shape = part.shape,
                          transposed = part.transposed, columns = #entry.shape > 1 and entry.shape[#entry.shape] or nil}
    end
  end
  return parts
end

-- Returns whether LoRA may change a part as that of a linear layer.
local function is_linear(part) return part.columns ~= nil and #part.shape == 2 and not part.parameter:find "^embedding%." end

-- Returns the targets that the option `lora` may name, in the model's order: {name = "blocks.0.attention.qkv.lora.q",
-- target =, block =, parameter =, first =, rows =}.
local function targets_of(o)
  local list, sparse = {}, mixtures.sparse_blocks(o)
  local queries, keys = o.heads * o.head_dim, o.kv_heads * o.head_dim
  local is_gated = o.activation == "swiglu"
  local function add(block, matrix, target, first, rows)
    local path = ("blocks.%d.%s."):format(block, matrix)
    list[#list + 1] = {name = path .. "lora." .. target, target = target, block = block, parameter = path .. "weight",
                       first = first, rows = rows}
  end
  for block = 0, o.layers - 1 do
    add(block, "attention.qkv", "q", 0, queries)
    add(block, "attention.qkv", "k", queries, keys)
    add(block, "attention.qkv", "v", queries + keys, keys)
    add(block, "attention.qkv", "qkv", 0, queries + 2 * keys)
    add(block, "attention.out", "out", 0, o.hidden)
    if not sparse[block] then
      if is_gated then
        add(block, "mlp.up", "gate", 0, o.ffn)
        add(block, "mlp.up", "up_proj", o.ffn, o.ffn)
      end
      add(block, "mlp.up", "up", 0, (is_gated and 2 or 1) * o.ffn)
      add(block, "mlp.down", "down", 0, o.hidden)
    end
  end
  if o.head == "value" then return list end -- its head is trained as a whole
  list[#list + 1] = {name = "head.lora.head", target = "head", parameter = o.tied and Modules.EMBEDDING or model_head.OF_LM,
                     first = 0, rows = o.vocab}
  return list
end

--- Returns the modules of a model with these options of moe.gpt, in which `lora` does not count. place: as map_of. Fields:
--   options    complete
--   parts      of the map, by the names of tensors, as names.by_tensor returns them, with `columns`
--   linear     those that LoRA may change, by the names of modules; that of a tied head is the embedding's weight
--   targets    of the option `lora`, in the model's order
function Modules.of(options, place)
  local map, o = map_of(options, place)
  local self = setmetatable({options = o, parts = parts_of(map), linear = {}, targets = targets_of(o)}, Modules)
  for name, part in pairs(self.parts) do
    if is_linear(part) then self.linear[name:gsub("%.weight$", "")] = part end
    if o.tied and part.parameter == Modules.EMBEDDING then
      self.embedding = name
      self.linear.lm_head = {name = Modules.HEAD, parameter = part.parameter, first = 0, rows = o.vocab, shape = part.shape,
                             columns = o.hidden}
    end
  end
  return self
end

--- Returns the number of the block, from 0, that a module is in; nil for one that is in none.
function Modules.block_of(module)
  local number = module:match "^[%a_]+%.[%a_]+%.(%d+)%."
  return number and tonumber(number)
end

--- Returns the modules whose rows are in those of a target or adapter, in the order of the rows; if there are none, the one
-- whose rows have them all. Both have {parameter, first, rows}.
function Modules:of_rows(target)
  local within, around = {}, nil
  local last = target.first + target.rows
  for module, part in pairs(self.linear) do
    if part.parameter == target.parameter then
      if part.first >= target.first and part.first + part.rows <= last then
        within[#within + 1] = module
      elseif part.first <= target.first and part.first + part.rows >= last then
        around = module
      end
    end
  end
  table.sort(within, function(a, b) return self.linear[a].first < self.linear[b].first end)
  return #within > 0 and within or {around}
end

--- Returns the target with exactly the rows of a module, or nil.
function Modules:target_of(module)
  local part = self.linear[module]
  for _, target in ipairs(self.targets) do
    if target.parameter == part.parameter and target.first == part.first and target.rows == part.rows then return target end
  end
  return nil
end

--- An error if an adapter (loading/adapter_tensors.lua) has modules or tensors that the model lacks, with the names of both.
function Modules:check_names(tensors)
  local lacking, there = {}, {}
  for module in pairs(tensors.halves) do
    if not self.linear[module] then lacking[#lacking + 1] = module end
  end
  for name in pairs(tensors.whole) do
    if not self.parts[name] and not (self.embedding and name == Modules.HEAD) then lacking[#lacking + 1] = name end
  end
  if #lacking == 0 then return end
  for module, part in pairs(self.linear) do
    if part.name ~= Modules.HEAD or not self.embedding then there[#there + 1] = module end
  end
  table.sort(lacking)
  table.sort(there)
  fail("%s changes modules that the model lacks (%d): %s. The model has the linear layers %s: give the adapter of this model, or "
    .. "the base of this adapter", tensors.path, #lacking, text.some(lacking), text.some(there))
end

--- An error for a tensor of an adapter that parts the head and the embedding of a tied model.
function Modules.refuse_untied(tensors, tensor)
  fail("%s: '%s' changes the head or the embedding, which are one matrix in this model (tied), so they would have to differ. "
    .. "Merge the adapter by PEFT and save the model with tie_word_embeddings = false, or train it without these modules",
    tensors.path, tensor.name)
end

--- The head of a tied model is the embedding's weight. Its whole tensors may be in the file under both names if they are equal:
-- then leaves that of the head out. An error for anything else, which would part them.
function Modules:check_tied(tensors)
  if not self.embedding then return end
  local whole = tensors.whole
  local head, embedding = whole[Modules.HEAD], whole[self.embedding]
  if head and embedding and core.op "equal"(tensors:read(head), tensors:read(embedding)) then
    whole[Modules.HEAD] = nil
  elseif head or embedding then
    Modules.refuse_untied(tensors, head or embedding)
  end
end

--- An error unless a tensor of an adapter has the shape that the model needs.
function Modules.check_shape(tensors, tensor, shape, why)
  if text.shape(tensor.shape) == text.shape(shape) then return end
  fail("%s: '%s' is %s instead of %s, %s: look for the files that belong together", tensors.path, tensor.name,
    text.shape(tensor.shape), text.shape(shape), why)
end

--- An error unless the matrices A and B of a module have the rank of adapter_config.json and the shapes of the model's matrix.
function Modules:check_pair(tensors, module, rank)
  local part, pair = self.linear[module], tensors.halves[module]
  local why = ("by the rank of adapter_config.json (r, rank_pattern) and the model's matrix [%d, %d]"):format(part.rows,
    part.columns)
  Modules.check_shape(tensors, pair.A, {rank, part.columns}, why)
  Modules.check_shape(tensors, pair.B, {part.rows, rank}, why)
end

return Modules
