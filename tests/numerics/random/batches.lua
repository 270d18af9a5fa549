--- The global batch of a step, a pure function of the case and the step.
--
-- It consists of pieces, one per micro-batch of every data-parallel rank. Piece p has `rows[p % #rows + 1]` samples and
-- `seq[p % #seq + 1]` tokens per sample. No token of a piece in `empty` is valid, nor are those in the ranges {first, last} of
-- `ignored`. With `packed`, samples consist of documents.
local zt = require "zt"

local batches = {}

local IGNORED = -100

-- A number in [0, 1) of a place in the batch: a hash without state.
local function uniform(seed, step, piece, index)
  local x = (seed * 7919 + step * 104729 + piece * 1299709 + index * 15485863 + 12345) % 2147483647
  for _ = 1, 3 do x = (x * 48271) % 2147483647 end
  return x / 2147483647
end

local function is_among(list, value)
  for _, each in ipairs(list or {}) do
    if each == value then return true end
  end
  return false
end

local function is_within(ranges, place)
  for _, range in ipairs(ranges or {}) do
    if place >= range[1] and place <= range[2] then return true end
  end
  return false
end

-- Adds the fields of packed documents, which begin at random tokens.
local function add_documents(piece, draw, rows, seq)
  local segments, positions = {}, {}
  for i = 1, rows do
    segments[i], positions[i] = {0}, {0}
    for j = 2, seq do
      local is_first = draw() < 0.12
      segments[i][j] = segments[i][j - 1] + (is_first and 1 or 0)
      positions[i][j] = is_first and 0 or positions[i][j - 1] + 1
    end
  end
  piece.segments, piece.positions = zt.tensor(segments, {dtype = "int64"}), zt.tensor(positions, {dtype = "int64"})
end

-- Adds the fields of a policy's loss, numbers per token.
local function add_numbers(piece, draw, rows, seq)
  local ranges = {old_logprobs = {-4, -1}, ref_logprobs = {-4, -1}, advantages = {-1.5, 1.5}}
  for _, name in ipairs{"old_logprobs", "ref_logprobs", "advantages"} do
    local numbers, least, most = {}, unpack(ranges[name])
    for i = 1, rows do
      numbers[i] = {}
      for j = 1, seq do numbers[i][j] = least + (most - least) * draw() end
    end
    piece[name] = zt.tensor(numbers, {dtype = "float64"})
  end
end

-- Adds the sequences of the policy's answers: the documents, or whole rows. `lengths`: how many tokens of its sequence count.
local function add_sequences(piece, rows, seq)
  local sequence = piece.segments or zt.zeros({rows, seq}, {dtype = "int64"})
  local labels, numbers, lengths = piece.labels:tolist(), sequence:tolist(), {}
  for i = 1, rows do
    local found = {}
    for j = 1, seq do found[numbers[i][j]] = (found[numbers[i][j]] or 0) + (labels[i][j] ~= IGNORED and 1 or 0) end
    lengths[i] = {}
    for j = 1, seq do lengths[i][j] = found[numbers[i][j]] end
  end
  piece.sequence, piece.lengths = sequence, zt.tensor(lengths, {dtype = "int64"})
end

local function piece_of(case, step, p, is_full)
  local rows, seq = case.rows[p % #case.rows + 1], is_full and case.seq[1] or case.seq[p % #case.seq + 1]
  local tokens, labels, index = {}, {}, 0
  local function draw()
    index = index + 1
    return uniform(case.seed, step, p, index)
  end
  local is_empty = is_among(case.empty, p) and not is_full
  for i = 1, rows do
    tokens[i], labels[i] = {}, {}
    for j = 1, seq do
      tokens[i][j] = math.floor(draw() * case.vocab)
      labels[i][j] = (is_empty or draw() < 0.2) and IGNORED or math.floor(draw() * case.vocab)
      if is_within(case.ignored, j - 1) then labels[i][j] = IGNORED end
    end
  end
  -- At least one token of each step is valid.
  if p == 0 and not is_empty then labels[1][1] = tokens[1][1] end
  local factor, wanted = {}, {}
  for i = 1, rows do factor[i], wanted[i] = draw() + 0.5, draw() < 0.5 and 1 or 0 end
  local piece = {
    tokens = zt.tensor(tokens, {dtype = "int64"}), labels = zt.tensor(labels, {dtype = "int64"}),
    factor = zt.tensor(factor, {dtype = "float64"}), wanted = zt.tensor(wanted, {dtype = "float64"}),
  }
  if case.packed then add_documents(piece, draw, rows, seq) end
  add_numbers(piece, draw, rows, seq)
  add_sequences(piece, rows, seq)
  return piece
end

--- Returns the list of `count` pieces from `first`. `is_full`: all with the longest sequence, and none is empty.
function batches.pieces(case, step, first, count, is_full)
  local list = {}
  for p = first, first + count - 1 do list[#list + 1] = piece_of(case, step, p, is_full) end
  return list
end

--- Returns the number of samples of the first `count` pieces, where `count` is a number of whole ranks or all pieces are alike.
function batches.samples(case, count)
  local sum = 0
  for _, rows in ipairs(case.rows) do sum = sum + rows end
  return count * sum / #case.rows
end

--- Returns one batch of the samples of all pieces, which have one length.
function batches.joined(pieces)
  local batch = {}
  for name in pairs(pieces[1]) do
    local parts = {}
    for i, piece in ipairs(pieces) do parts[i] = piece[name] end
    batch[name] = zt.cat(parts, 0)
  end
  return batch
end

--- Returns the batch with a mistake in its last sample: "labels" or "tokens" that the vocabulary does not have, or a "fuse" at
--- which a layer fails.
function batches.wrong(batch, vocab, mistake)
  local copy = {}
  for name, field in pairs(batch) do copy[name] = field end
  copy[mistake] = mistake == "fuse" and batch.factor:clone() or batch[mistake]:clone()
  copy[mistake]:select(0, -1):fill_(vocab + 3)
  return copy
end

--- Returns the batch with a fuse at which no layer fails.
function batches.with_fuse(batch)
  local copy = {fuse = batch.factor:mul(0)}
  for name, field in pairs(batch) do copy[name] = field end
  return copy
end

return batches
