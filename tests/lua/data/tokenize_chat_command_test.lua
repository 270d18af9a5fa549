-- Tests `ztoolkit tokenize --chat`: its options, what it prints, and that a killed command leaves no token file.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local data = require "zt.data"
local fs = require "zt.fs"
local shown = require "zt.data.chat.shown"
local command = require "support.command" "tokenize"
local chat_files = require "data.chat_files"
local temporary = require "support.temporary"

local CHATML = chat_files.GOLDEN .. "/chatml"
local RIGHT = '{"prompt": "Hi", "completion": "Yes"}'

local TestCommand = {}

function TestCommand:setUp()
  self.path = temporary()
  zt.mkdir_p(self.path)
end

function TestCommand:run(lines, ...)
  local input = chat_files.records(self.path .. "/x.jsonl", lines)
  return command("--chat", input, "--model", CHATML, ...)
end

function TestCommand:output() return "--output", self.path .. "/sft.npy" end

function TestCommand:test_it_names_its_files_and_sums_up()
  local text, status = self:run({RIGHT, RIGHT, "{"}, "--output", self.path .. "/sft.npy", "--skip-bad")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "tokenize: warning: left out line 3 of " .. self.path .. "/x.jsonl: it is not JSON")
  lu.assertStrContains(text, "encoded 100 %")
  local documents = chat_files.read(self.path .. "/sft.npy")
  local tokens = #documents[1].tokens
  lu.assertStrContains(text, ("wrote %s/sft.npy: 2 records (conversations), %d tokens, "):format(self.path, 2 * tokens))
  lu.assertStrContains(text, ("of them count, longest %d tokens, 1 skipped"):format(tokens))
  for _, ending in ipairs{"mask.npy", "offsets.npy", "json", "tokenizer.json"} do
    lu.assertStrContains(text, ("wrote %s/sft.%s\n"):format(self.path, ending))
    lu.assertTrue(zt.exists(self.path .. "/sft." .. ending))
  end
  text = self:run({'{"prompt": "x"}'}, self:output())
  lu.assertStrContains(text, ("wrote %s/sft.items.jsonl\n"):format(self.path))
end

function TestCommand:test_the_first_bad_record_ends_it()
  local text, status = self:run({RIGHT, '{"prompt": "x"}'}, self:output())
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "tokenize: line 2 of " .. self.path .. "/x.jsonl: its keys are those of prompts")
  lu.assertStrContains(text, "(--skip-bad leaves out such records)")
  lu.assertEquals(fs.list(self.path), {"x.jsonl"})
end

function TestCommand:test_few_bad_records_are_told()
  local lines = {RIGHT}
  for _ = 1, 9 do lines[#lines + 1] = "{" end
  local text = self:run(lines, "--skip-bad", self:output())
  lu.assertEquals(select(2, text:gsub("left out line", "")), 5)
  lu.assertStrContains(text, "more records are wrong")
  lu.assertStrContains(text, "9 skipped")
end

function TestCommand:test_options_that_have_no_meaning_together()
  local function refused(message, ...)
    local text, status = command(...)
    lu.assertEquals(status, 2, text)
    lu.assertStrContains(text, "tokenize: option '--" .. message)
  end
  local records = {"--chat", "x.jsonl", "--model", CHATML, "--output", "x.npy"}
  for _, option in ipairs{{"input", "x"}, {"mode", "bytes"}, {"tokenizer", "x"}, {"vocab", "300"}, {"kind", "bpe"},
                          {"sample-bytes", "70000"}} do
    local words = {"--" .. option[1], option[2], unpack(records)}
    refused(option[1] .. "' has no meaning with --chat", unpack(words))
  end
  for _, option in ipairs{{"model", "x"}, {"mask", "all"}, {"plain"}, {"max-tokens", "3"}, {"skip-bad"}, {"show", "1"}} do
    refused(option[1] .. "' has no meaning without --chat", "--input", "x", "--output", "x.npy", "--" .. option[1], option[2])
  end
  refused("model' is missing", "--chat", "x.jsonl", "--output", "x.npy")
  refused("output' is missing", "--chat", "x.jsonl", "--model", CHATML)
  refused("mask last' has no meaning with --plain", "--plain", "--mask", "last", unpack(records))
  refused("output' must end in .npy", "--chat", "x.jsonl", "--model", CHATML, "--output", "x")
  local text, status = self:run({'{"prompt": "x"}'}, "--mask", "all", self:output())
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "tokenize: --mask all has no meaning with prompts")
end

function TestCommand:test_it_shows_what_counts()
  local text, status = self:run({RIGHT, RIGHT, "{"}, "--show", "2")
  lu.assertEquals(status, 0, text)
  local record = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n⟦Yes<|im_end|>⟧\n"
  lu.assertStrContains(text, "== record 1: ")
  lu.assertEquals(select(2, text:gsub((record:gsub("%p", "%%%0")), "")), 2, text)
  lu.assertEquals(fs.list(self.path), {"x.jsonl"}, "without --output nothing is written")
  text = self:run({'{"prompt": "Hi", "chosen": "A", "rejected": "B"}'}, "--show", "5", self:output())
  lu.assertStrContains(text, "== record 1, chosen: ")
  lu.assertStrContains(text, "⟦A<|im_end|>⟧")
  lu.assertTrue(zt.exists(self.path .. "/sft.npy"))
end

function TestCommand:test_colours()
  local tokenizer = data.tokenizer.load(CHATML)
  local text = "U: \27[2J<|im_end|>"
  local document = tokenizer:encode_answers(text, {answers = {{3, #text}}})
  lu.assertEquals(shown.text(tokenizer, document, true), "\27[2mU: \27[0m\27[32m\\x1b[2J<|im_end|>\27[0m")
  lu.assertEquals(shown.text(tokenizer, document, false), "U: ⟦\\x1b[2J<|im_end|>⟧")
end

function TestCommand:test_it_warns_of_answers_without_an_end()
  local model = chat_files.folder(self.path .. "/model", "chatml", {["generation_config.json"] = '{"eos_token_id": 421}'})
  local input = chat_files.records(self.path .. "/x.jsonl", {RIGHT, RIGHT})
  local text, status = command("--chat", input, "--model", model, self:output())
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "warning: none of the 2 answers ends with a stop token that counts (</s>)")
  lu.assertNotStrContains(self:run({RIGHT}, self:output()), "warning")
end

-- The command is killed while it writes. A later one succeeds.
function TestCommand:test_a_killed_command_leaves_no_token_file()
  local lines = {}
  for place = 1, 200000 do lines[place] = RIGHT end
  local input = chat_files.records(self.path .. "/x.jsonl", lines)
  local script = self.path .. "/kill.sh"
  zt.write_file(script, ([[
unset ${!OMPI_*} ${!PMIX_*}
"$(readlink /proc/$PPID/exe)" tokenize --chat '%s' --model '%s' --output '%s/sft.npy' >'%s/log' 2>&1 &
for try in $(seq 1000); do
  [ -s '%s/sft.npy.partial' ] && break
  sleep 0.02
done
kill -9 $!
wait
]]):format(input, CHATML, self.path, self.path, self.path))
  io.popen("exec bash " .. script):close()
  lu.assertFalse(zt.exists(self.path .. "/sft.npy"), fs.read(self.path .. "/log"))
  lu.assertTrue(zt.exists(self.path .. "/sft.npy.partial"))
  local text, status = self:run({RIGHT}, self:output())
  lu.assertEquals(status, 0, text)
  lu.assertEquals(#chat_files.read(self.path .. "/sft.npy"), 1)
  lu.assertFalse(zt.exists(self.path .. "/sft.npy.partial"))
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCommand", TestCommand}})
