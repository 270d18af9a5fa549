-- Tests data.conversations, data.preferences, data.prompts and data.blend from Lua.
package.path = "tests/data/?.lua;tests/lua/?.lua;" .. package.path
local data = require "zt.data"
local lu   = require "luaunit"
local zt   = require "zt"
local chat_files = require "support.chat_files"
local document = chat_files.document

local folder = os.tmpname()
os.remove(folder)
assert(os.execute("mkdir " .. folder) == 0)

local conversations = chat_files.write(folder, "sft", "conversations",
                                       {document("ab", "cd"), document("e", "fgh"), document("ij", "k")})
local preferences = chat_files.write(folder, "pairs", "preferences",
                                     {document("ab", ""), document("", "cd"), document("", "x")})
local items, prompts = {}, {}
for index = 1, 6 do
  prompts[index] = document(("p"):rep(index), "")
  items[index] = {number = index, nested = {list = {index, "x"}}}
end
local prompt_path = chat_files.write(folder, "ask", "prompts", prompts, items)

local function open(open_stream, path, options)
  local all = {path = path, seq = 8, batch = 1, validation = 0, shuffle = false}
  for name, value in pairs(options or {}) do all[name] = value end
  return open_stream(all)
end

local TestConversations = {}

function TestConversations.test_packed_rows()
  local stream = open(data.conversations, conversations)
  lu.assertEquals({stream.samples, stream.vocab, stream.seq, stream.tokenizer.kind}, {1, 256, 8, "bytes"})
  local batch = stream:batch(0)
  local b = string.byte
  lu.assertEquals(batch.tokens:tolist(), {{b"a", b"b", b"c", b"e", b"f", b"g", b"i", b"j"}})
  lu.assertEquals(batch.labels:tolist(), {{-100, b"c", b"d", b"f", b"g", b"h", -100, b"k"}})
  lu.assertEquals(batch.segments:tolist(), {{0, 0, 0, 1, 1, 1, 2, 2}})
  lu.assertEquals(batch.positions:tolist(), {{0, 1, 2, 0, 1, 2, 0, 1}})
  lu.assertEquals(batch.padding:sum():item(), 0)
  lu.assertEquals(batch.sample:tolist(), {0})
end

function TestConversations.test_padded_rows_and_errors()
  local batch = open(data.conversations, conversations, {pack = false, padding = "left", seq = 4}):batch(2)
  lu.assertEquals(batch.padding:tolist(), {{1, 1, 0, 0}})
  lu.assertEquals(batch.segments:tolist(), {{0, 0, 1, 1}})
  lu.assertErrorMsgContains("record 0 of", open, data.conversations, conversations, {seq = 2, too_long = "error"})
  lu.assertErrorMsgContains("unknown option 'sequence'", open, data.conversations, conversations, {sequence = 3})
  lu.assertErrorMsgContains("holds preferences", open, data.conversations, preferences)
  lu.assertErrorMsgContains("phase.index must lie between 0 and 1", open, data.conversations, conversations,
                            {phase = {weights = {1, 1}, index = 2}})
end

function TestConversations.test_phases()
  local seen = 0
  for index = 0, 2 do
    local phase = {weights = {1, 1, 1}, index = index}
    local is_there, stream = pcall(open, data.conversations, conversations, {pack = false, phase = phase})
    if is_there then seen = seen + stream.samples end
  end
  lu.assertEquals(seen, 3)
end

function TestConversations.test_preferences()
  local batch = open(data.preferences, preferences):batch(0)
  local b = string.byte
  lu.assertEquals(batch.tokens:tolist(), {{b"a", b"b", b"c", b"d", b"a", b"b", b"x", 0}})
  lu.assertEquals(batch.labels:tolist(), {{-100, b"c", b"d", -100, -100, b"x", -100, -100}})
  lu.assertEquals(batch.sequence:tolist(), {{0, 0, 0, 0, 1, 1, 1, -1}})
  lu.assertEquals(batch.side:tolist(), {{0, 0, 0, 0, 1, 1, 1, -1}})
end

local TestPrompts = {}

local function open_prompts(options)
  local all = {path = prompt_path, batch = 2, validation = 0, seed = 4}
  for name, value in pairs(options or {}) do all[name] = value end
  return data.prompts(all)
end

function TestPrompts.test_batches()
  local stream = open_prompts()
  lu.assertEquals({stream.samples, stream.batch_size, stream.vocab, stream.tokenizer.kind}, {6, 2, 256, "bytes"})
  local seen = {}
  for step, batch in stream:steps(3) do
    lu.assertEquals(batch.sample:tolist(), {2 * step, 2 * step + 1})
    for index, prompt in ipairs(batch.prompts) do
      local number = batch.items[index].number
      lu.assertEquals({prompt:dtype(), stream.tokenizer:decode(prompt)}, {"int64", ("p"):rep(number)})
      lu.assertEquals(batch.items[index], items[number])
      seen[number] = true
    end
  end
  lu.assertEquals(#seen, 6)
  lu.assertEquals({stream.step, stream:epoch(2), stream:epoch(3)}, {3, 0, 1})
end

function TestPrompts.test_resume()
  local stream, resumed = open_prompts(), open_prompts{batch = 3}
  stream:seek(3)
  resumed:restore(zt.json.decode(zt.json.encode(stream:state())))
  lu.assertEquals(resumed:batch(3).sample:tolist(), {6, 7, 8})
  lu.assertEquals(resumed:batch(3).items[1], stream:batch(3).items[1])
  local other = open_prompts{seed = 5}
  lu.assertErrorMsgContains("seed = 4 (this stream: 5)", other.restore, other, stream:state())
  other:restore(stream:state(), {allow = "other_order"})
  lu.assertEquals(other.step, 3)
end

local TestBlend = {}

function TestBlend.test_is_a_stream()
  local function make(batch, seed)
    return data.blend{{open(data.conversations, conversations), 3}, {open(data.conversations, conversations, {pack = false}), 1},
                      batch = batch, seed = seed}
  end
  local blend = make(4)
  lu.assertEquals({blend.samples, blend.seq, blend.vocab, blend.batch_size, blend:epoch(0)}, {4, 8, 256, 4, 0})
  lu.assertEquals(blend.tokenizer.kind, "bytes")
  lu.assertTrue(blend:entropy() > 0)
  local padded, state = 0
  for step, batch in blend:steps(5) do
    padded = padded + batch.padding:sum(1):gt(0):sum():item()
    if step == 2 then state = zt.json.decode(zt.json.encode(blend:state())) end
  end
  lu.assertEquals(padded, 5) -- 20 samples, a quarter of them from the stream whose rows are padded
  local resumed = make(6)
  resumed:restore(state)
  lu.assertEquals(resumed:batch(3).sample:tolist(), {12, 13, 14, 15, 16, 17})
  lu.assertTrue(resumed:batch(3).tokens:narrow(0, 0, 4):equal(blend:batch(3).tokens))
  local other = make(4, 9)
  lu.assertErrorMsgContains("seed = 0 (this stream: 9)", other.restore, other, state)
end

function TestBlend.test_errors()
  local stream = open(data.conversations, conversations)
  lu.assertErrorMsgContains("data.blend: entry 1: give a list {stream, weight}, got a TokenStream", data.blend,
                            {stream, batch = 1})
  lu.assertErrorMsgContains("data.blend[1][2] must be a number", data.blend, {{stream, "much"}, batch = 1})
  lu.assertErrorMsgContains("data.blend[1][1] must be a TokenStream", data.blend, {{3, 3}, batch = 1})
  lu.assertErrorMsgContains("'batch' is missing", data.blend, {{stream, 1}})
  lu.assertErrorMsgContains("data.blend has no streams: give data.blend{{stream, weight}, ..., batch = n}", data.blend,
                            {batch = 1})
  lu.assertErrorMsgContains("data.blend takes a table", data.blend, 3)
end

local failures = lu.LuaUnit.new():runSuiteByInstances{
  {"TestConversations", TestConversations}, {"TestPrompts", TestPrompts}, {"TestBlend", TestBlend},
}
os.execute("rm -r " .. folder)
os.exit(failures)
