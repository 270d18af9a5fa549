-- Tests the module `data` from Lua: streams, tokenizers, token files.
package.path = "tests/lua/?.lua;" .. package.path
local data = require "zt.data"
local lu   = require "luaunit"
local zt   = require "zt"
local tokenize = require "support.command" "tokenize"

local folder = os.tmpname()
os.remove(folder)
assert(os.execute("mkdir " .. folder) == 0)

local function put(name, text)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  file:write(text)
  file:close()
  return folder .. "/" .. name
end

-- A text of 2,600 bytes, "aaaa...bbbb..." and so on. Each byte is a token.
local letters = {}
for i = 0, 25 do letters[#letters + 1] = string.char(97 + i):rep(100) end
local text = table.concat(letters)
local tokens = folder .. "/letters.npy"
data.tokenize {input = put("letters.txt", text), output = tokens, tokenizer = data.tokenizer.bytes()}

local function open(options)
  local all = {path = tokens, seq = 10, batch = 4, seed = 3}
  for key, value in pairs(options or {}) do all[key] = value end
  if all.shuffle == false then all.seed = nil end
  return data.tokens(all)
end

local TestTokens = {}

function TestTokens.test_batch_is_a_table_of_tensors()
  local batch = open():batch(0)
  lu.assertEquals(batch.tokens:size(), {4, 10})
  lu.assertEquals(batch.labels:size(), {4, 10})
  lu.assertEquals(batch.sample:tolist(), {0, 1, 2, 3})
  lu.assertTrue(batch.tokens:narrow(1, 1, 9):equal(batch.labels:narrow(1, 0, 9)))
end

function TestTokens.test_fields()
  local stream = open()
  lu.assertEquals({stream.vocab, stream.seq, stream.batch_size, stream.step}, {256, 10, 4, 0})
  lu.assertEquals(stream.samples, 246) -- 2,470 tokens of the train split in shifted windows: 2470 / 10 - 1
  lu.assertEquals(stream:epoch(0), 0)
  lu.assertEquals(stream:epoch(62), 1)
end

function TestTokens.test_steps_continue_from_the_current_step()
  local stream = open()
  local seen = {}
  for step in stream:steps(3) do seen[#seen + 1] = step end
  lu.assertEquals(stream.step, 3)
  for step, batch in stream:steps(5) do
    seen[#seen + 1] = step
    lu.assertTrue(batch.tokens:equal(open():batch(step).tokens))
  end
  lu.assertEquals(seen, {0, 1, 2, 3, 4})
  for _ in stream:steps(5) do lu.fail("no step is left") end
  stream:seek(0)
  lu.assertEquals(stream.step, 0)
end

function TestTokens.test_state_saved_in_the_body_resumes_with_the_next_step()
  local stream = open()
  local state
  for step in stream:steps(10) do
    if step == 4 then state = stream:state() end
  end
  local resumed = open()
  resumed:restore(state)
  for step, batch in resumed:steps(8) do
    lu.assertTrue(step >= 5)
    lu.assertTrue(batch.tokens:equal(stream:batch(step).tokens))
  end
  lu.assertErrorMsgContains("'step' is missing", resumed.restore, resumed, {samples = 1})
end

function TestTokens.test_a_state_of_other_options()
  local stream = open()
  stream:seek(5)
  local state = zt.json.decode(zt.json.encode(stream:state()))
  local larger = open {batch = 8}
  larger:restore(state)
  lu.assertEquals({larger.step, larger:batch(5).sample:tolist()[1]}, {5, 20})
  lu.assertTrue(larger:batch(5).tokens[0]:equal(stream:batch(5).tokens[0]))
  for expected, options in pairs {
    ["seed = 3 (this stream: 77)"] = {seed = 77}, ["seq = 10 (this stream: 20)"] = {seq = 20},
    ["shuffle = true (this stream: false)"] = {shuffle = false},
    ["validation = 0.05 (this stream: 0)"] = {validation = 0},
  } do
    local other = open(options)
    lu.assertErrorMsgContains(expected, other.restore, other, state)
    lu.assertEquals(other.step, 0)
    lu.assertErrorMsgContains("stream:restore.allow must be one of 'other_order'", other.restore, other, state, {allow = "all"})
    other:restore(state, {allow = "other_order"})
    lu.assertEquals({other.step, other:batch(5).sample:tolist()}, {5, {20, 21, 22, 23}})
  end
end

function TestTokens.test_entropy()
  -- The train split holds 24 letters 100 times and one 70 times.
  local expected = 0
  for i = 1, 25 do
    local p = (i <= 24 and 100 or 70) / 2470
    expected = expected - p * math.log(p)
  end
  lu.assertAlmostEquals(open():entropy(), expected, 25 * 2 ^ -50) -- 25 terms below 1, each with one rounding
end

function TestTokens.test_tokenizer_of_the_file()
  local stream = open {split = "validation", shuffle = false}
  lu.assertEquals(stream.tokenizer.kind, "bytes")
  -- The last 130 tokens: 30 times y, 100 times z.
  lu.assertEquals(stream.tokenizer:decode(stream:batch(0).tokens), ("y"):rep(30) .. ("z"):rep(10))
end

function TestTokens.test_errors()
  lu.assertErrorMsgContains("unknown option 'seqq': did you mean 'seq'?", open, {seqq = 3})
  lu.assertErrorMsgContains("give a smaller seq", open, {seq = 5000})
  lu.assertErrorMsgContains("not an .npy file", open, {path = put("bad.npy", "nonsense")})
  local file = assert(io.open(tokens, "rb"))
  local whole = file:read "*a"
  file:close()
  lu.assertErrorMsgContains("cut short: its header declares 2600 numbers", open, {path = put("short.npy", whole:sub(1, -7))})
end

local TestDocuments = {}

function TestDocuments.test_padding_and_packing()
  local path = folder .. "/lines.npy"
  data.tokenize {input = put("lines.txt", "ab\nc\n"), output = path, tokenizer = data.tokenizer.bytes()}
  local options = {path = path, seq = 4, batch = 1, separator = 10, validation = 0, shuffle = false}
  lu.assertEquals(data.documents(options):batch(0).labels:tolist(), {{98, 10, -100, -100}})
  lu.assertEquals(data.documents(options):batch(0).padding:tolist(), {{0, 0, 1, 1}})
  options.pack = true
  local batch = data.documents(options):batch(0)
  lu.assertEquals(batch.labels:tolist(), {{98, 10, 10, -100}})
  lu.assertEquals(batch.segments:tolist(), {{0, 0, 1, 2}})
  lu.assertEquals(batch.positions:tolist(), {{0, 1, 0, 0}})
end

local TestTokenizer = {}

function TestTokenizer.test_round_trip()
  local lines = {}
  for i = 1, 3000 do lines[i] = ("word number %d of several\n"):format(i) end
  local input = put("words.txt", table.concat(lines))
  local learnt = data.tokenizer.train {input = input, vocab = 320}
  local output, calls = folder .. "/words.npy", 0
  local count = data.tokenize {input = input, output = output, tokenizer = learnt, progress = function() calls = calls + 1 end}
  lu.assertTrue(calls > 0 and count > 0)
  local loaded = data.tokenizer.load(output)
  for _, sample in ipairs {"", "word \195\169\n\n  of", lines[7]} do
    local ids = loaded:encode(sample)
    lu.assertEquals(ids:dtype(), "int64")
    lu.assertEquals(loaded:decode(ids), sample)
    lu.assertEquals(loaded:decode(ids:tolist()), sample)
  end
  lu.assertErrorMsgContains("0 to 319", loaded.decode, loaded, {320})
  lu.assertErrorMsgContains("token ids are integers", loaded.decode, loaded, zt.ones({2}))
end

function TestTokenizer.test_the_command_checks_its_files_before_it_learns()
  local input = put("enough.txt", ("some words of a text with enough pieces for a tokenizer\n"):rep(500))
  local output, status = tokenize("--input", input, "--output", folder .. "/none/x.npy", "--vocab", "300")
  local no_folder = "tokenize: cannot write '%s/none/x.npy': there is no folder '%s/none': make it first (mkdir -p)\n"
  lu.assertEquals({output, status}, {no_folder:format(folder, folder), 1})
  output, status = tokenize("--input", folder .. "/missing.txt", "--output", folder .. "/x.npy")
  local no_text = "tokenize: cannot open '%s/missing.txt': No such file or directory: check the path\n"
  lu.assertEquals({output, status}, {no_text:format(folder), 1})
end

function TestTokenizer.test_an_error_in_progress_leaves_no_file()
  local output = folder .. "/stopped.npy"
  lu.assertErrorMsgContains("enough", data.tokenize, {
    input = tokens, output = output, tokenizer = data.tokenizer.bytes(), progress = function() error "enough" end,
  })
  lu.assertNil(io.open(output))
  lu.assertNil(io.open(output .. ".partial"))
end

local failures = lu.LuaUnit.new():runSuiteByInstances{
  {"TestTokens", TestTokens}, {"TestDocuments", TestDocuments}, {"TestTokenizer", TestTokenizer},
}
os.execute("rm -r " .. folder)
os.exit(failures)
