-- Tests engines of folders: models of Hugging Face's families, whose logits transformers computed, and checkpoints.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, data, infer, nn = require "zt.ckpt", require "zt.data", require "zt.infer", require "zt.nn"
local command = require "support.command" "generate"
local bench = require "support.command" "infer"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local TestFolders = {}

-- The log-probabilities of a prompt are those of transformers' logits, and the first token is the likeliest one of the last. The
-- models take no more tokens than the samples have.
function TestFolders:test_all_families_have_the_log_probabilities_of_transformers()
  for _, name in ipairs(models.NAMES) do
    local expected = models.expected_of(name)
    for _, case in ipairs(models.BOUNDS) do
      local precision, bound = case[1], case[2]
      local engine = infer.engine{model = models.FOLDER .. name, dtype = precision, token_budget = 64}
      local logits = expected["logits_" .. precision]:to "float64"
      local requests, rows = {}, expected.tokens:tolist()
      for place, row in ipairs(rows) do
        requests[place] = {prompt = {unpack(row, 1, #row - 1)}, max_tokens = 1, temperature = 0, prompt_logprobs = true,
                           ignore_eos = true}
      end
      for place, answer in ipairs(engine:generate(requests)) do
        local all = logits:select(0, place - 1)
        local logprobs, largest = all:log_softmax(-1):tolist(), all:abs():max():item()
        for i, logprob in ipairs(answer.prompt_logprobs) do
          lu.assertAlmostEquals(logprob, logprobs[i][rows[place][i + 1] + 1], 2 * bound * largest, name)
        end
        lu.assertEquals(#answer.prompt_logprobs, #rows[place] - 2)
        local likeliest = all:select(0, #rows[place] - 2):argmax():item()
        if precision == "fp64" then lu.assertEquals(answer.tokens[1], likeliest, name) end
      end
    end
  end
end

-- Saves a model of bytes in a folder. Returns the folder and the trainer.
local function saved()
  local folder = temporary() .. "/run"
  local model = nn.gpt{layers = 2, hidden = 32, heads = 2, vocab = 256, seq = 64, family = "llama", seed = 3}
  local trainer = zt.trainer(zt.program(model), {optimizer = require("zt.optim").adamw{lr = 0.01}})
  ckpt.save(folder, {trainer = trainer}, {step = 0, async = false})
  return folder, trainer
end

function TestFolders:test_a_checkpoint_gives_the_answers_of_its_trainer()
  local folder, trainer = saved()
  local request = {prompt = "abc", max_tokens = 12, logprobs = 0}
  local expected = infer.engine{trainer = trainer, tokenizer = data.tokenizer.bytes()}:generate(request)[1]
  for _, path in ipairs{folder, folder .. "/step_00000000"} do
    local answer = infer.engine{model = path}:generate(request)[1]
    lu.assertEquals({answer.tokens, answer.text, answer.logprobs}, {expected.tokens, expected.text, expected.logprobs})
  end
end

function TestFolders:test_the_command_prints_texts()
  local folder, trainer = saved()
  local request = {prompt = "abc", max_tokens = 12, temperature = 0.5, seed = 7, n = 2}
  local expected = infer.engine{trainer = trainer, tokenizer = data.tokenizer.bytes()}:generate(request)
  local words = {folder, "--prompt", "abc", "--max-tokens", "12", "--temperature", "0.5", "--seed", "7"}
  local text, status = command(unpack(words))
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "abc" .. expected[1].text .. "\n")
  lu.assertStrContains(text, "12 tokens in")
  for _, word in ipairs{"--json", "--n", "2"} do words[#words + 1] = word end
  text = command(unpack(words))
  local place = 0
  for line in text:gmatch "{[^\n]*}" do
    place = place + 1
    local answer = zt.json.decode(line)
    lu.assertEquals({answer.copy, answer.tokens}, {place - 1, expected[place].tokens})
  end
  lu.assertEquals(place, 2)
  local file = temporary() .. ".jsonl"
  local line = '{"prompt": "abc", "max_tokens": 12, "temperature": 0.5, "seed": 7}\n'
  zt.write_file(file, line .. '\n{"prompt": [1, 2], "max_tokens": 3}\n')
  text, status = command(folder, "--file", file)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "== request 1, answer 1\n" .. expected[1].text .. "\n== request 2, answer 1\n")
end

function TestFolders:test_the_command_refuses_mistakes()
  local folder = saved()
  local function refused(message, ...)
    local text, status = command(...)
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, "generate: " .. message)
    lu.assertNotStrContains(text, "stack traceback")
  end
  refused("give one of --prompt, --file and --chat", folder)
  refused("give one of --prompt, --file and --chat", folder, "--prompt", "x", "--chat")
  refused("--system is the first message of a conversation", folder, "--prompt", "x", "--system", "y")
  refused("there is no folder '/none'", "/none", "--prompt", "x")
  refused("there is no model in '" .. temporary():match "^(.*)/", temporary():match "^(.*)/", "--prompt", "x")
  refused("--tensor 2 and --pipeline 1 need 2 ranks, and this run has 1", folder, "--prompt", "x", "--tensor", "2")
  refused("--prompt: 1 tokens of prompt and max_tokens = 64 exceed max_context = 64",
          folder, "--prompt", "x", "--max-tokens", "64")
  local file = temporary() .. ".jsonl"
  zt.write_file(file, '{"prompt": "x"}\n{"promp": "x"}\n')
  refused("line 2 of " .. file .. " is no request", folder, "--file", file)
  zt.write_file(file, '{"prompt": \n')
  refused("line 1 of " .. file .. " is not JSON: ", folder, "--file", file)
  refused("--group is the number of columns that share a scale", folder, "--prompt", "x", "--group", "32")
  refused("--prompt: n must lie between 1 and 4096", folder, "--prompt", "x", "--n", "5000")
  local import = temporary() .. "/import"
  zt.mkdir_p(import)
  local made = ckpt.import(import, 0)
  made:add("model/x", zt.ones(2))
  made:finish{script = {}}
  refused("'" .. import .. "/step_00000000' does not record its model's options", import, "--prompt", "x")
  refused("'" .. models.FOLDER
    .. "llama' has no tokenizer (tokenizer.json or tokenizer.model)", models.FOLDER .. "llama", "--prompt", "x")
end

function TestFolders:test_quantised_models_are_refused_by_name()
  local folder = temporary()
  zt.mkdir_p(folder)
  for _, method in ipairs{"gptq", "awq"} do
    zt.write_file(folder .. "/config.json", zt.json.encode{model_type = "llama", quantization_config = {quant_method = method}})
    zt.write_file(folder .. "/model.safetensors", zt.fs.read(models.FOLDER .. "llama/model.safetensors"))
    lu.assertErrorMsgContains("the model is quantised by " .. method, infer.engine, {model = folder})
  end
  lu.assertErrorMsgContains("is a file of llama.cpp (GGUF)", infer.engine, {model = "some/model.gguf"})
end

-- Runs `ztoolkit generate` with its output to a full disk. Returns its status and errors.
local function to_full_disk(folder, words)
  local errors = os.tmpname()
  local script = ('program=$(readlink "/proc/$PPID/exe")\nunset ${!OMPI_*} ${!PMIX_*}\n"$program" generate %s %s '
    .. '--max-tokens 3 >/dev/full 2>%s\necho $?\n'):format(folder, words, errors)
  local file = os.tmpname()
  zt.write_file(file, script)
  local pipe = io.popen("exec bash " .. file)
  local status = tonumber(pipe:read "*a")
  pipe:close()
  return status, zt.fs.read(errors)
end

function TestFolders:test_a_full_disk_is_an_error()
  local folder, file = (saved()), os.tmpname()
  zt.write_file(file, '{"prompt": "a"}\n{"prompt": "b"}\n')
  for _, words in ipairs{"--prompt abc", "--prompt abc --json", "--file " .. file, "--file " .. file .. " --json"} do
    local status, errors = to_full_disk(folder, words)
    lu.assertEquals(status, 1, words)
    lu.assertStrContains(errors, "generate: cannot write the output: No space left on device")
  end
end

function TestFolders:test_bench_prints_rates()
  local folder = saved()
  local text, status = bench("bench", folder, "--prompts", "8,32", "--answers", "1,3", "--context", "4", "--tokens", "6")
  lu.assertEquals(status, 0, text)
  lu.assertStrMatches(text, ".*fp32, weights plain, %d+ threads; memory is read at [%d.]+ GB/s\n.*")
  lu.assertStrMatches(text, ".*\n8 +[%d.]+ +[%d.]+\n32 +[%d.]+ +[%d.]+\n.*")
  lu.assertStrMatches(text, ".*\n1 +[%d.]+ +[%d.]+ +[%d.]+ [KM]iB +%d+ %%\n3 +[%d.]+ .*")
  for words, message in pairs{["--prompts 100"] = "exceed the model's context of 64",
                              ["--answers 0"] = "numbers of at least 1"} do
    text, status = bench("bench", folder, words:match "^(%S+)", words:match "(%S+)$")
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, message)
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestFolders", TestFolders}})
