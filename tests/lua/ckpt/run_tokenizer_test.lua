-- Tests what the checkpoints of a run keep of a tokenizer: its files, the chat template, and the tokens that end an answer.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, data, nn, optim = require "zt.ckpt", require "zt.comm", require "zt.data", require "zt.nn", require "zt.optim"
local chat_files = require "data.chat_files"
local command = require "ckpt.own_command"
local temporary = require "support.temporary"

local RECORDS = {{messages = {{role = "user", content = "Hi"}, {role = "assistant", content = "Hello"}}}}

-- Returns the path of a run that has begun with this tokenizer.
local function run_with(tokenizer, vocab)
  local model = nn.gpt{family = "llama", layers = 1, hidden = 16, heads = 2, vocab = vocab, seq = 16}
  local trainer = zt.trainer(zt.program(model), {optimizer = optim.adamw{lr = 0.01}})
  local run = zt.run{name = "run", folder = temporary(), mesh = comm.mesh{dp = 1}, trainer = trainer, tokenizer = tokenizer}
  ckpt.save(run, 1, {async = false})
  run:finish()
  return run.path
end

local TestRunTokenizer = {}

function TestRunTokenizer:setUp()
  self.path = temporary()
  zt.mkdir_p(self.path)
  self.folder = chat_files.folder(self.path .. "/model", "chatml", {["generation_config.json"] = '{"eos_token_id": [3, 5]}'})
  self.vocab = data.tokenizer.load(self.folder .. "/tokenizer.json").vocab
end

function TestRunTokenizer:test_of_a_folder()
  local base = ckpt.pretrained(run_with(self.folder, self.vocab))
  lu.assertEquals(base.stop_tokens, {3, 5})
  lu.assertEquals(base.chat.source, zt.fs.read(self.folder .. "/chat_template.jinja"))
  local tokenizer = data.tokenizer.load(self.folder .. "/tokenizer.json")
  lu.assertEquals(base.tokenizer:encode("Hello"):tolist(), tokenizer:encode("Hello"):tolist())
end

function TestRunTokenizer:test_of_the_run_before()
  local base = ckpt.pretrained(run_with(ckpt.pretrained(run_with(self.folder, self.vocab)), self.vocab))
  lu.assertEquals(base.stop_tokens, {3, 5})
  lu.assertEquals(base.chat.source, zt.fs.read(self.folder .. "/chat_template.jinja"))
end

-- A run is as good as the folder to convert conversations.
function TestRunTokenizer:test_converts_conversations()
  local run, input = run_with(self.folder, self.vocab), chat_files.records(self.path .. "/x.jsonl", RECORDS)
  local made = {}
  for i, model in ipairs{self.folder, run} do
    local output = ("%s/%d.npy"):format(self.path, i)
    made[i] = data.tokenize_chat{input = input, model = model, output = output}
    made[i].tokenizer = nil
    made[i].documents = chat_files.read(output)
  end
  lu.assertEquals(made[2], made[1])
  lu.assertEquals(made[1].stop_tokens, {3, 5})
end

function TestRunTokenizer:test_export_and_import()
  local run, out, back = run_with(self.folder, self.vocab), self.path .. "/out", self.path .. "/back"
  local output, status = command("export", run, out, "--huggingface")
  lu.assertEquals(status, 0, output)
  lu.assertEquals(zt.json.decode(zt.fs.read(out .. "/generation_config.json")).eos_token_id, {3, 5})
  lu.assertEquals(ckpt.pretrained(out).stop_tokens, {3, 5})
  output, status = command("import", out, back)
  lu.assertEquals(status, 0, output)
  lu.assertEquals(ckpt.pretrained(back).stop_tokens, {3, 5})
  lu.assertNotNil(ckpt.pretrained(back).chat)
end

function TestRunTokenizer:test_mistakes()
  local function refused(text, tokenizer) lu.assertErrorMsgContains(text, run_with, tokenizer, 8) end
  refused("there is no folder '/none'", "/none")
  refused("zt.run.tokenizer must be what ckpt.pretrained returns, or a folder with a tokenizer, got an integer", 3)
  lu.assertErrorMsgContains("has no tokenizer (tokenizer.json or tokenizer.model)", data.tokenize_chat,
    {input = chat_files.records(self.path .. "/x.jsonl", RECORDS), model = run_with(nil, 8)})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestRunTokenizer", TestRunTokenizer}})
