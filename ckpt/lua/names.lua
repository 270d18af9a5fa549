--- Maps between the parameters of moe.gpt and the tensors of Hugging Face's families of models (huggingface.lua). A map is plain
-- data and serves both directions: a list with one entry per parameter, in the model's order:
--
--   {name = "blocks.0.attention.qkv.weight", shape = {40, 16}, parts = {
--     {name = "model.layers.0.self_attn.q_proj.weight", shape = {24, 16}, first = 0, rows = 24},
--     {name = "model.layers.0.self_attn.k_proj.weight", shape = {8, 16}, first = 24, rows = 8}, ...}}
--
-- A part says that the file's tensor of that name and shape is rows [first, first + rows) of the parameter. With `transposed`,
-- the tensor's transpose is those rows. The parts of a parameter are all its rows, in order. No tensor occurs twice. A parameter
-- of experts, [experts, rows, columns], counts as a matrix [experts * rows, columns]: the rows of an expert follow those of the
-- one before it.
--
-- Rows need no reordering: both nn.gpt and Hugging Face rotate halves and store heads one after the other.

local core = require "zt.core"
local fail = require "zt.fail"
local mixtures = require "zt.ckpt.mixtures"
local model_head = require "zt.ckpt.config.model_head"
local text = require "zt.text"

local names = {}

-- Adds a parameter that consists of `sources`, a list of {name, rows}. columns: nil for a vector. Returns its entry.
local function add(map, name, columns, sources, transposed)
  local entry, first = {name = name, parts = {}}, 0
  for index, source in ipairs(sources) do
    local rows = source[2]
    local shape = columns and (transposed and {columns, rows} or {rows, columns}) or {rows}
    entry.parts[index] = {name = source[1], shape = shape, first = first, rows = rows, transposed = transposed or nil}
    first = first + rows
  end
  entry.shape = columns and {first, columns} or {first}
  map[#map + 1] = entry
  return entry
end

-- Adds the weight [out, in] and the bias of a layer. sources: a list of {name without ".weight", rows}. columns: nil for a norm.
local function add_affine(map, name, columns, sources, has_bias, transposed)
  for _, kind in ipairs(has_bias and {"weight", "bias"} or {"weight"}) do
    local named = {}
    for index, source in ipairs(sources) do named[index] = {source[1] .. "." .. kind, source[2]} end
    local is_weight = kind == "weight"
    add(map, name .. "." .. kind, is_weight and columns or nil, named, is_weight and transposed)
  end
end

local forms = {}

-- GPT-2 computes x * W, so its weights are [in, out].
forms.gpt2 = {
  prefix = "transformer.",
  layer = "^h%.(%d+)%.",
  layers_key = "n_layer",
  embedding = "wte.weight",
  ignored = {"^h%.%d+%.attn%.bias$", "^h%.%d+%.attn%.masked_bias$"}, -- masks, in files of older versions
  build = function(map, o, prefix)
    add(map, "embedding.weight", o.hidden, {{prefix .. "wte.weight", o.vocab}})
    add(map, "embedding.positions", o.hidden, {{prefix .. "wpe.weight", o.seq}})
    for layer = 0, o.layers - 1 do
      local ours, theirs = ("blocks.%d."):format(layer), ("%sh.%d."):format(prefix, layer)
      add_affine(map, ours .. "norm1", nil, {{theirs .. "ln_1", o.hidden}}, true)
      add_affine(map, ours .. "attention.qkv", o.hidden, {{theirs .. "attn.c_attn", 3 * o.hidden}}, true, true)
      add_affine(map, ours .. "attention.out", o.hidden, {{theirs .. "attn.c_proj", o.hidden}}, true, true)
      add_affine(map, ours .. "norm2", nil, {{theirs .. "ln_2", o.hidden}}, true)
      add_affine(map, ours .. "mlp.up", o.hidden, {{theirs .. "mlp.c_fc", o.ffn}}, true, true)
      add_affine(map, ours .. "mlp.down", o.ffn, {{theirs .. "mlp.c_proj", o.hidden}}, true, true)
    end
    add_affine(map, "head.norm", nil, {{prefix .. "ln_f", o.hidden}}, true)
  end,
}

-- Adds the attention and the norms of a block of the family of Llama.
local function add_attention(map, ours, theirs, o)
  local queries, keys = o.heads * o.head_dim, o.kv_heads * o.head_dim
  local attention, qkv_bias = theirs .. "self_attn.", o.qkv_bias
  if qkv_bias == nil then qkv_bias = o.bias end
  add(map, ours .. "norm1.weight", nil, {{theirs .. "input_layernorm.weight", o.hidden}})
  add_affine(map, ours .. "attention.qkv", o.hidden,
    {{attention .. "q_proj", queries}, {attention .. "k_proj", keys}, {attention .. "v_proj", keys}}, qkv_bias)
  for _, norm in ipairs(o.qk_norm and {"q_norm.weight", "k_norm.weight"} or {}) do
    add(map, ours .. "attention." .. norm, nil, {{attention .. norm, o.head_dim}})
  end
  add_affine(map, ours .. "attention.out", queries, {{attention .. "o_proj", o.hidden}}, o.bias)
  add(map, ours .. "norm2.weight", nil, {{theirs .. "post_attention_layernorm.weight", o.hidden}})
end

local function add_dense(map, ours, mlp, o)
  add_affine(map, ours .. "mlp.up", o.hidden, {{mlp .. "gate_proj", o.ffn}, {mlp .. "up_proj", o.ffn}}, o.bias)
  add_affine(map, ours .. "mlp.down", o.ffn, {{mlp .. "down_proj", o.hidden}}, o.bias)
end

-- Adds a parameter of experts. sources: for each expert, a list of {name with %d for the expert, rows}.
local function add_experts(map, name, experts, columns, sources)
  local of_all = {}
  for expert = 0, experts - 1 do
    for _, source in ipairs(sources) do of_all[#of_all + 1] = {source[1]:format(expert), source[2]} end
  end
  local entry = add(map, name, columns, of_all)
  entry.shape = {experts, entry.shape[1] / experts, columns}
end

-- Adds a parameter of experts that is one tensor in the file, too.
local function add_stack(map, name, shape, source)
  map[#map + 1] = {name = name, shape = shape, parts = {{name = source, shape = shape, first = 0, rows = shape[1] * shape[2]}}}
end

-- Adds the router and the experts of a block. expert_names: those of a form, or nil if the file has the experts of a block as one
-- tensor, as models of transformers 5 hold them.
local function add_mixture(map, ours, theirs, o, expert_names)
  local moe = o.moe
  local mlp = theirs .. (expert_names and expert_names.mlp or "mlp.")
  add(map, ours .. "router.weight", o.hidden, {{mlp .. "gate.weight", moe.experts}})
  if not expert_names then
    add_stack(map, ours .. "experts.up.weight", {moe.experts, 2 * moe.ffn, o.hidden}, mlp .. "experts.gate_up_proj")
    add_stack(map, ours .. "experts.down.weight", {moe.experts, o.hidden, moe.ffn}, mlp .. "experts.down_proj")
    return
  end
  local expert = mlp:gsub("%%", "%%%%") .. "experts.%d."
  add_experts(map, ours .. "experts.up.weight", moe.experts, o.hidden,
    {{expert .. expert_names.gate, moe.ffn}, {expert .. expert_names.up, moe.ffn}})
  add_experts(map, ours .. "experts.down.weight", moe.experts, moe.ffn, {{expert .. expert_names.down, o.hidden}})
end

-- Returns a form of the family of Llama. experts: the names of the experts' tensors, for a mixture.
local function form_of_llama(experts)
  return {
    prefix = "model.",
    layer = "^layers%.(%d+)%.",
    layers_key = "num_hidden_layers",
    embedding = "embed_tokens.weight",
    ignored = {"rotary_emb%.inv_freq$"}, -- tables, in files of older versions
    experts = experts,
    build = function(map, o, prefix, is_stacked)
      local sparse = mixtures.sparse_blocks(o)
      add(map, "embedding.weight", o.hidden, {{prefix .. "embed_tokens.weight", o.vocab}})
      for layer = 0, o.layers - 1 do
        local ours, theirs = ("blocks.%d."):format(layer), ("%slayers.%d."):format(prefix, layer)
        add_attention(map, ours, theirs, o)
        if sparse[layer] then
          add_mixture(map, ours, theirs, o, not is_stacked and experts or nil)
        else
          add_dense(map, ours, theirs .. "mlp.", o)
        end
      end
      add(map, "head.norm.weight", nil, {{prefix .. "norm.weight", o.hidden}})
    end,
  }
end

for _, form in ipairs{"llama", "mistral", "qwen2", "qwen3"} do forms[form] = form_of_llama() end
forms.mixtral = form_of_llama{mlp = "block_sparse_moe.", gate = "w1.weight", up = "w3.weight", down = "w2.weight"}
forms.qwen3_moe = form_of_llama{mlp = "mlp.", gate = "gate_proj.weight", up = "up_proj.weight", down = "down_proj.weight"}

-- shapes: those of the files' tensors; nil for the names that transformers writes.
local function build(form, o, prefix, is_stacked, shapes)
  local map = {}
  form.build(map, o, prefix, is_stacked)
  local head, tensor, rows = model_head.weight(o, shapes)
  if head then add(map, head, o.hidden, {{tensor, rows}}) end
  local bias, bias_tensor = model_head.bias(o)
  if bias then add(map, bias, nil, {{bias_tensor, 1}}) end
  return map
end

--- Returns the map of a model of a form that huggingface.options or huggingface.config returns, with the names that transformers
-- writes. options: those of moe.gpt, as huggingface.complete returns them.
function names.map(form, options) return build(forms[form], options, forms[form].prefix) end

--- Returns a map as a list of the file's tensors, in the map's order: {name, shape, parameter, first, rows, transposed}.
function names.by_tensor(map)
  local list = {}
  for _, entry in ipairs(map) do
    for _, part in ipairs(entry.parts) do
      local tensor = {parameter = entry.name}
      for key, value in pairs(part) do tensor[key] = value end
      list[#list + 1] = tensor
    end
  end
  return list
end

-- Returns the shape of `rows` rows of a parameter.
local function shape_of_rows(entry, rows)
  local columns = #entry.shape > 1 and entry.shape[#entry.shape] or nil
  return {rows, columns}
end

--- Returns a parameter, joined from the file's tensors. entry: that of the map. read(name) returns a tensor of the file.
function names.join(entry, read)
  local parts = {}
  for index, part in ipairs(entry.parts) do
    local values = read(part.name)
    if part.transposed then values = values:t() end
    parts[index] = values:reshape(shape_of_rows(entry, part.rows))
  end
  return core.cat(parts, 0):reshape(entry.shape)
end

--- Returns a tensor of the file. part: an element of `by_tensor`. rows: its rows of the parameter, [rows, columns] or [rows].
function names.part_of(part, rows)
  if part.transposed then rows = rows:t() end
  return rows:reshape(part.shape)
end

local function is_ignored(form, name, prefix)
  if name:sub(1, #prefix) ~= prefix then return false end
  for _, pattern in ipairs(form.ignored) do
    if name:sub(#prefix + 1):match(pattern) then return true end
  end
  return false
end

--- Returns a line for each kind of tensors that do not fit. wanted: a list of {name, shape}. there: {name = shape}. titles: those
-- of missing ones and of extra ones. is_known(name): whether a tensor may be there besides.
function names.complaints(wanted, there, titles, is_known)
  local missing, wrong, extra, is_wanted, lines = {}, {}, {}, {}, {}
  for _, tensor in ipairs(wanted) do
    local got, shape = there[tensor.name], text.shape(tensor.shape)
    is_wanted[tensor.name] = true
    if not got then
      missing[#missing + 1] = tensor.name
    elseif text.shape(got) ~= shape then
      wrong[#wrong + 1] = ("%s is %s instead of %s"):format(tensor.name, text.shape(got), shape)
    end
  end
  for name in pairs(there) do
    if not is_wanted[name] and not is_known(name) then extra[#extra + 1] = name end
  end
  table.sort(extra)
  for _, group in ipairs{{titles[1], missing}, {"of another shape", wrong}, {titles[2], extra}} do
    if #group[2] > 0 then lines[#lines + 1] = ("%d %s: %s"):format(#group[2], group[1], text.some(group[2])) end
  end
  return lines
end

-- An error if config.json has more layers than the tensors. Called before the map is built, whose size grows with the layers.
local function check_layers(form, options, shapes, prefix, path)
  local there = 0
  for name in pairs(shapes) do
    local number = name:sub(1, #prefix) == prefix and name:sub(#prefix + 1):match(form.layer)
    if number then there = math.max(there, tonumber(number) + 1) end
  end
  if options.layers <= there then return end
  fail("%s has '%s' = %d, but the tensors are those of %d layers: look for the files that belong together", path, form.layers_key,
    options.layers, there)
end

-- An error if config.json has another vocabulary than the tensors.
local function check_vocabulary(form, options, shapes, prefix, path)
  local there = shapes[prefix .. form.embedding]
  if not there or there[1] == options.vocab or there[2] ~= options.hidden then return end
  fail("%s has 'vocab_size' = %d, but the tensors are those of a vocabulary of %d tokens: look for the files that belong "
    .. "together", path, options.vocab, there[1])
end

-- Returns whether the file has the experts of a block as one tensor. An error if it lacks experts that config.json has: the map's
-- size grows with their number, so this is called before the map is built.
local function check_experts(form, options, shapes, path)
  if not options.moe then return false end
  local blocks, there = 0, 0
  for _ in pairs(mixtures.sparse_blocks(options)) do blocks = blocks + 1 end
  for name in pairs(shapes) do
    if name:find "%.mlp%.experts%.gate_up_proj$" then return true end
    if name:find(form.experts.mlp .. "experts.", 1, true) then there = there + 1 end
  end
  local needed = 3 * options.moe.experts * blocks
  if there >= needed then return false end
  fail("%s has %d experts in %d layers, of 3 tensors each, but only %d of the %d tensors of experts are there: look for the "
    .. "files that belong together", path, options.moe.experts, blocks, there, needed)
end

--- Returns the map that fits the tensors of a model's files. shapes: {name = shape}. The names may lack their prefix, as in files
-- of a model without its head. Also returns {copy = original} for a tied head that is written twice; the values of both must be
-- equal. The files may have other heads besides (config/model_head.lua). An error has a line for each kind of tensors that do not
-- fit. path: the config.json of the options, for messages.
function names.fit(form_name, options, shapes, path)
  local form = forms[form_name]
  local prefix = shapes[form.embedding] and "" or form.prefix
  path = path or "config.json"
  check_layers(form, options, shapes, prefix, path)
  check_vocabulary(form, options, shapes, prefix, path)
  local map, copies = build(form, options, prefix, check_experts(form, options, shapes, path), shapes), {}
  local copy = model_head.copy_of_embedding(options, shapes)
  if copy then copies[copy] = prefix .. form.embedding end
  local function is_known(name)
    return copies[name] or is_ignored(form, name, prefix) or model_head.is_of_other(options, shapes, name)
  end
  local lines = names.complaints(names.by_tensor(map), shapes, {"missing", "not part of such a model"}, is_known)
  if #lines > 0 then
    fail("the tensors are not those of the %s that %s describes, so the model cannot be made from them; look for the right "
      .. "files.\n%s", form_name, path, table.concat(lines, "\n"))
  end
  return map, copies
end

return names
