-- Tests that each rank reads its contiguous part of the batch that a single rank would read. The number of ranks must divide 12.
local comm = require "zt.comm"
local data = require "zt.data"
local zt   = require "zt"

local tokens = os.tmpname()
local text = assert(io.open(tokens, "wb"))
for i = 0, 2999 do text:write(string.char(i * i % 251)) end
text:close()
data.tokenize {input = tokens, output = tokens .. ".npy", tokenizer = data.tokenizer.bytes()}

local axis = comm.mesh {dp = -1}:axis "dp"
local options = {path = tokens .. ".npy", seq = 16, batch = 12, seed = 5}
local whole = data.tokens(options)
options.axis = axis
local part = data.tokens(options)
local rows = 12 / axis.size

for step, batch in part:steps(40) do -- more than two epochs
  local expected = whole:batch(step)
  for _, field in ipairs {"tokens", "labels", "sample"} do
    assert(batch[field]:equal(expected[field]:narrow(0, zt.world.rank * rows, rows)), "rank reads another part of " .. field)
  end
end
assert(part:epoch(39) >= 2)

-- A state of one rank with 12 samples per batch resumes on these ranks with 24: with sample 84 in step 7.
for _, open in ipairs {data.tokens, data.documents} do
  local separator = open == data.documents and 0 or nil
  local function stream(batch, of) return open {
    path = options.path, seq = 16, batch = batch, seed = 5, axis = of, separator = separator,
  } end
  local saved, resumed, single = stream(12), stream(24, axis), stream(1)
  saved:seek(7)
  resumed:restore(saved:state())
  for step, batch in resumed:steps(30) do
    local first = 84 + (step - 7) * 24 + zt.world.rank * 2 * rows
    assert(batch.sample:equal(zt.arange(first, first + 2 * rows):to "int64"), "rank reads other samples")
    for row = 0, 2 * rows - 1 do assert(batch.tokens[row]:equal(single:batch(first + row).tokens[0])) end
  end
end

-- Ranks with other options are refused, by all ranks alike.
local function open_with(changes)
  local given = {path = options.path, seq = 16, batch = 12, seed = changes.shuffle == nil and 5 or nil, axis = axis}
  for name, value in pairs(changes) do given[name] = value end
  return select(2, pcall(data.tokens, given))
end
local last = axis.size - 1
local why = ("on rank %d of 'dp': the ranks would not read parts of the same batches; give all ranks the same"):format(last)
local is_last = zt.world.rank == last
for _, case in ipairs {{"seed", 5, 6}, {"batch", 12, 24}, {"seq", 16, 8}, {"shuffle", true, false}} do
  local name, others, lasts = case[1], case[2], case[3]
  local value = others
  if is_last then value = lasts end
  local refusal = open_with {[name] = value}
  if axis.size > 1 then
    local expected = ("the option '%s' of data.tokens is %s on rank 0 and %s %s"):format(name, others, lasts, why)
    assert(type(refusal) == "string" and refusal:find(expected, 1, true), refusal)
  end
end
for _, extension in ipairs {"", ".npy", ".json"} do os.remove(tokens .. extension) end
