-- Tests that each rank reads its contiguous part of the batch that a single rank would read. The number of ranks must divide 12.
package.path = "tests/data/?.lua;" .. package.path
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

-- Conversations, prompts and blends are shared in the same way.
local chat_files = require "support.chat_files"
local documents, items = {}, {}
for index = 1, 40 do
  documents[index] = chat_files.document(("q"):rep(1 + index % 5), ("a"):rep(1 + index % 7))
  items[index] = {number = index}
end
local folder = tokens .. ".chat"
assert(os.execute("mkdir " .. folder) == 0)
local chats = chat_files.write(folder, "sft", "conversations", documents)
local asks = chat_files.write(folder, "ask", "prompts", documents, items)
local function conversations(of, changes)
  local given = {path = chats, seq = 16, batch = 12, seed = 5, axis = of}
  for name, value in pairs(changes or {}) do given[name] = value end
  return data.conversations(given)
end
local function blend(of, changes)
  local given = {{conversations(of), 2}, {conversations(of, {seed = 6}), 1}, batch = 24, seed = 1}
  for name, value in pairs(changes or {}) do given[name] = value end
  return data.blend(given)
end
for _, case in ipairs {{conversations, 12}, {blend, 24}} do
  local open, batch = case[1], case[2]
  local share = batch / axis.size
  local all, mine = open(), open(axis)
  for step, got in mine:steps(9) do
    for name, field in pairs(all:batch(step)) do
      assert(got[name]:equal(field:narrow(0, zt.world.rank * share, share)), "rank reads another part of " .. name)
    end
  end
end
local function prompts(of) return data.prompts{path = asks, batch = 12, seed = 5, axis = of} end
local all_prompts = prompts()
for step, got in prompts(axis):steps(9) do
  local expected = all_prompts:batch(step)
  assert(#got.prompts == rows)
  for row = 1, rows do
    assert(got.items[row].number == expected.items[zt.world.rank * rows + row].number)
    assert(got.prompts[row]:equal(expected.prompts[zt.world.rank * rows + row]))
  end
end
if axis.size > 1 then
  local function refusal_of(open, name, others, lasts)
    return select(2, pcall(open, axis, {[name] = is_last and lasts or others}))
  end
  local function contains(message, words) return type(message) == "string" and message:find(words, 1, true) end
  local of_phase = refusal_of(conversations, "phase", {weights = {1, 1}, index = 0}, {weights = {1, 1}, index = 1})
  assert(contains(of_phase, "the option 'phase' of data.conversations is 'phase 0 of {1, 1}' on rank 0"), of_phase)
  local of_seed = refusal_of(blend, "seed", 1, 2)
  assert(contains(of_seed, "the option 'seed' of data.blend is 1 on rank 0 and 2 on rank"), of_seed)
end
os.execute("rm -r " .. folder)
for _, extension in ipairs {"", ".npy", ".json"} do os.remove(tokens .. extension) end
