-- The ztoolkit side of rlhf_vs.py. Reads a model, a reference and data.json from --folder, and runs iterations of one row:
--
--   ztoolkit run -n 2 bench/peers/rlhf_vs.lua --folder F --row grpo --steps 5     prints the seconds of an iteration
--
-- With --turns the iterations are those that rlhf_vs.py asks for: the file go.N in that folder has a number of iterations, 0 at
-- the end, and done.N gets their seconds and the last loss. Between them no rank computes or waits for another one.
local zt = require "zt"
local ckpt, comm, infer, moe = require "zt.ckpt", require "zt.comm", require "zt.infer", require "zt.moe"
local optim, rlhf, zero = require "zt.optim", require "zt.rlhf", require "zt.zero"

local o = zt.cli{
  name = "rlhf_vs", about = "Times iterations of fine-tuning; started by bench/peers/rlhf_vs.py.",
  options = {
    {"folder", nil, "the folder that rlhf_vs.py has written", type = "string"},
    {"row", "sft", "what is timed", one_of = {"sft", "lora", "qlora", "dpo", "grpo", "ppo"}},
    {"steps", 5, "timed iterations, after one that is not", at_least = 1},
    {"seq", 0, "positions of a row of sequences; 0: those with which a batch has the fewest positions", at_least = 0},
    {"lr", 1e-5, "rate of the optimizer", above = 0},
    {"stage", 1, "ZeRO stage", between = {0, 3}},
    {"turns", nil, "the folder in which the benchmark asks for iterations", type = "string"},
  },
}
local WAIT_SECONDS = 0.003 -- between two looks for a file
local ANSWERS = 8          -- to each prompt of grpo
local SHORTEST_ROW, LONGEST_ROW, STRIDE = 128, 1024, 16 -- positions of rows that are tried

local mesh = comm.mesh{dp = -1}
local data = zt.json.decode(zt.fs.read(o.folder .. "/data.json"))

-- Returns a trainer of the model in a subfolder, frozen without `trains`. how: {head =, loss = layer, lora =, trains =, clip =,
-- format = of packed matrices, new_head = true: the head keeps its own values}.
local function trainer_of(name, how)
  local base = ckpt.pretrained(o.folder .. "/" .. name)
  local options = {}
  for key, value in pairs(base.options) do options[key] = value end
  options.head, options.lora = how.head, how.lora
  local model = moe.gpt(options)
  if how.format then model:pack{format = how.format, keep = {"head"}} end
  if how.loss then model = model:append(how.loss, "loss") end
  local program = zt.program(model, {precision = "fp32"}):apply(zero.shard{axis = mesh.dp, stage = o.stage})
  local optimizer = how.trains and {optimizer = optim.adamw{lr = o.lr, betas = {0.9, 0.999}}, clip = how.clip} or nil
  local trainer = zt.trainer(program, optimizer)
  base:load(trainer, {head = how.new_head and "new" or "same"})
  return trainer
end

-- Returns lists of tokens as one vector, and where each begins in it.
local function joined(lists)
  local tokens, offsets = {}, {0}
  for i, list in ipairs(lists) do
    for _, token in ipairs(list) do tokens[#tokens + 1] = token end
    offsets[i + 1] = #tokens
  end
  return zt.tensor(tokens, {dtype = "int64"}), zt.tensor(offsets, {dtype = "int64"})
end

-- Returns the options of rlhf.make_rows for sequences {prompt, answer}.
local function sequences_of(list)
  local prompts, answers = {}, {}
  for i, each in ipairs(list) do prompts[i], answers[i] = each[1], each[2] end
  local made = {}
  made.prompts, made.prompt_offsets = joined(prompts)
  made.answers, made.answer_offsets = joined(answers)
  return made
end

-- Returns the parts of a list by rank: consecutive elements.
local function parts_of(list)
  local parts = {}
  for rank = 1, mesh.dp.size do
    parts[rank] = {}
    for i = math.floor(#list * (rank - 1) / mesh.dp.size) + 1, math.floor(#list * rank / mesh.dp.size) do
      table.insert(parts[rank], list[i])
    end
  end
  return parts
end

-- Returns the largest number that fn(part) returns.
local function most(parts, fn)
  local largest = 0
  for _, part in ipairs(parts) do largest = math.max(largest, fn(part)) end
  return largest
end

-- Returns --seq, or the positions of a row, at least `shortest`, with which rows_for(seq) rows have the fewest positions.
local function fitted(shortest, rows_for)
  if o.seq > 0 then return o.seq end
  local best, least = nil, math.huge
  for seq = shortest, LONGEST_ROW, STRIDE do
    local positions = seq * rows_for(seq)
    if positions < least then best, least = seq, positions end
  end
  return best
end

-- Returns this rank's rows of records {prompt, answer}, several in a row. All ranks make equally many rows.
local function packed(records)
  local parts = parts_of(records)
  for rank, part in ipairs(parts) do
    parts[rank] = sequences_of(part)
    parts[rank].chosen = zt.arange(#part):to "int64"
  end
  local function rows_for(seq)
    return most(parts, function(part)
      part.seq = seq
      return rlhf.count_rows(part)
    end)
  end
  local seq, own = fitted(SHORTEST_ROW, rows_for), parts[mesh.dp.rank + 1]
  own.rows, own.seq = rows_for(seq), seq
  return rlhf.make_rows(own).fields
end

-- Puts pairs into rows of `seq` positions: each goes to the first row that has room. Returns lists of numbers of sequences, of
-- which pair i has 2 * i - 2 and 2 * i - 1.
local function rows_of_pairs(part, seq)
  local rows = {}
  for i, pair in ipairs(part) do
    local size, place = 2 * #pair.prompt + #pair.chosen + #pair.rejected, nil
    for _, row in ipairs(rows) do
      if row.used + size <= seq then place = place or row end
    end
    if not place then
      place = {used = 0}
      rows[#rows + 1] = place
    end
    place.used = place.used + size
    place[#place + 1], place[#place + 2] = 2 * i - 2, 2 * i - 1
  end
  return rows
end

-- Returns this rank's rows of pairs {prompt =, chosen =, rejected =}, in which the answers of a pair are neighbours.
local function packed_pairs(all)
  local parts = parts_of(all)
  local function rows_for(seq) return most(parts, function(part) return #rows_of_pairs(part, seq) end) end
  local seq, own = fitted(2 * SHORTEST_ROW, rows_for), parts[mesh.dp.rank + 1]
  local rows, list = rows_of_pairs(own, seq), {}
  for _, pair in ipairs(own) do
    list[#list + 1], list[#list + 2] = {pair.prompt, pair.chosen}, {pair.prompt, pair.rejected}
  end
  local made, fields = sequences_of(list), {}
  made.rows, made.seq = 1, seq
  for row = 1, rows_for(seq) do
    made.chosen = zt.tensor(rows[row] or {}, {dtype = "int64"})
    for name, field in pairs(rlhf.make_rows(made).fields) do
      fields[name] = fields[name] or {}
      fields[name][row] = field
    end
  end
  for name, of_rows in pairs(fields) do fields[name] = zt.cat(of_rows) end
  return fields
end

-- Returns the batch of a step of a list of batches, which repeats.
local function of_step(batches, step) return batches[step % #batches + 1] end

-- Returns answers of 64 tokens to the prompts of an iteration.
local function answers_of(engine, step, n)
  return rlhf.rollout{engine = engine, prompts = {prompts = of_step(data.prompts[n == 1 and "ppo" or "grpo"], step)}, n = n,
                      max_tokens = data.answer_tokens, min_tokens = data.answer_tokens, iteration = step, mesh = mesh}
end

local function engine_of(trainer)
  return infer.engine{trainer = trainer, max_sequences = 64, token_budget = 2048, max_context = 128}
end

-- Makes the one step of an iteration. Returns its loss.
local function update(answers, trainer, step)
  local loss
  for batch in rlhf.batches(answers, {trainer = trainer, seed = step}) do loss = trainer:step(batch).loss end
  return loss
end

local function sft(more)
  local how = {head = "lm", trains = true, clip = 1}
  for key, value in pairs(more) do how[key] = value end
  local trainer = trainer_of("model", how)
  return function(step) return trainer:step(packed(of_step(data.sft, step))).loss end
end

-- By row: a function that returns function(step), which runs an iteration and returns its loss.
local ROWS = {
  sft = function() return sft{} end,
  lora = function() return sft{lora = {rank = 16, alpha = 32, targets = {"q", "v"}}} end,
  qlora = function() return sft{lora = {rank = 16, alpha = 32, targets = {"q", "v"}}, format = "nf4"} end,
  dpo = function()
    local policy = trainer_of("model", {head = "logprobs", loss = rlhf.loss.dpo{beta = 0.1}, trains = true, clip = 1})
    local reference = trainer_of("reference", {head = "logprobs"})
    return function(step)
      local batch = packed_pairs(of_step(data.dpo, step))
      return policy:step(rlhf.reference(batch, {reference = reference, axis = mesh.dp})).loss
    end
  end,
  grpo = function()
    local actor = trainer_of("model", {head = "logprobs", loss = rlhf.loss.grpo{}, trains = true, clip = 1})
    local engine = engine_of(actor)
    local function reward(_, _, _, tokens) return tokens:to "float64":mean():item() / data.vocab end
    return function(step)
      local answers = answers_of(engine, step, ANSWERS)
      rlhf.score(answers, {actor = actor, reward = reward, old = "sampler"})
      rlhf.advantages(answers, {kind = "group"})
      return update(answers, actor, step)
    end
  end,
  ppo = function()
    local actor = trainer_of("model", {head = "logprobs", loss = rlhf.loss.ppo{}, trains = true})
    local critic = trainer_of("model", {head = "value", loss = rlhf.loss.value{}, trains = true, new_head = true})
    local reference = trainer_of("model", {head = "logprobs"})
    local reward = trainer_of("reference", {head = "value", new_head = true})
    local engine = engine_of(actor)
    return function(step)
      local answers = answers_of(engine, step, 1)
      rlhf.score(answers, {actor = actor, reference = reference, critic = critic, reward = reward, old = "sampler",
                           rows = math.ceil(answers.count / mesh.dp.size)})
      rlhf.advantages(answers, {kind = "gae", whiten = "batch", kl = {coefficient = 0.05}})
      return update(answers, actor, step), update(answers, critic, step)
    end
  end,
}

local iterate, step, loss = ROWS[o.row](), 0, nil

-- Runs iterations. Returns their seconds.
local function run(count)
  mesh:world():barrier()
  local began = zt.now()
  for _ = 1, count do
    loss = iterate(step)
    step = step + 1
  end
  mesh:world():barrier()
  return zt.now() - began
end

local function wait_for(path)
  while not zt.exists(path) do zt.sleep(WAIT_SECONDS) end
  return tonumber(zt.fs.read(path))
end

if o.turns then
  local turn, count = 0, wait_for(o.turns .. "/go.0")
  while count > 0 do
    local seconds = run(count)
    if zt.world.rank == 0 then
      zt.write_file(("%s/done.%d"):format(o.turns, turn), zt.json.encode{seconds = seconds, loss = loss})
    end
    turn = turn + 1
    count = wait_for(("%s/go.%d"):format(o.turns, turn))
  end
else
  run(1)
  local first, seconds = loss, run(o.steps)
  if zt.world.rank == 0 then print(("%s: %.4f s per iteration, first loss %.6f"):format(o.row, seconds / o.steps, first)) end
end
