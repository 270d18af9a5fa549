-- Tests `ztoolkit generate` with files of requests, and what `ztoolkit infer bench` does with a short context.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, data, infer, nn = require "zt.ckpt", require "zt.data", require "zt.infer", require "zt.nn"
local answers = require "zt.cmd.generate.answers"
local command = require "support.command"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local generate = command "generate"

-- Returns the folder of a model of bytes, and an engine of it.
local function saved(seq)
  local folder = temporary() .. "/run"
  local model = nn.gpt{layers = 2, hidden = 32, heads = 2, vocab = 256, seq = seq or 64, family = "llama", seed = 3}
  local trainer = zt.trainer(zt.program(model), {optimizer = require("zt.optim").adamw{lr = 0.01}})
  ckpt.save(folder, {trainer = trainer}, {step = 0, async = false})
  return folder, infer.engine{trainer = trainer, tokenizer = data.tokenizer.bytes()}
end

-- Returns the name of a file with this content.
local function file_of(content)
  local file = temporary() .. ".jsonl"
  zt.write_file(file, content)
  return file
end

-- Returns the decoded lines of JSON in a text.
local function decoded(text)
  local list = {}
  for line in text:gmatch "{[^\n]*}" do list[#list + 1] = zt.json.decode(line) end
  return list
end

-- Runs a script of bash, in which $program is this program. Returns its output.
local function bash(script)
  local file = os.tmpname()
  zt.write_file(file, 'program=$(readlink "/proc/$PPID/exe")\nunset ${!OMPI_*} ${!PMIX_*}\n'
    .. "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n" .. script)
  local pipe = io.popen("exec bash " .. file)
  local output = pipe:read "*a"
  pipe:close()
  os.remove(file)
  return output
end

-- Returns what action() writes to the standard output.
local function printed(action)
  local parts, real = {}, io.stdout
  local sink = {flush = function() return true end}
  function sink:write(...)
    for _, part in ipairs{...} do parts[#parts + 1] = part end
    return self
  end
  io.stdout = sink -- luacheck: ignore 122
  local is_done, reason = pcall(action)
  io.stdout = real -- luacheck: ignore 122
  lu.assertTrue(is_done, reason)
  return table.concat(parts)
end

-- Returns a sink for messages, whose field `text` has them.
local function sink_of()
  return {text = "", flush = function() end, write = function(self, ...) self.text = self.text .. table.concat{...} end}
end

local function answer_of(request, copy, tokens, first_seconds)
  return {request = request, copy = copy, tokens = tokens, text = request .. "." .. copy, first_seconds = first_seconds or 0}
end

local TestGenerate = {}

function TestGenerate:test_answers_are_printed_as_soon_as_those_before_them()
  local printer = answers.new{requests = {{n = 1}, {n = 2}, {n = 1}}, has_text = true, total = 4, errors = sink_of()}
  local function after(...)
    local answer = answer_of(...)
    return printed(function() printer:add(answer) end)
  end
  local function text(...) return ("== request %d, answer %d\n%d.%d\n"):format(...) end
  lu.assertEquals(after(2, 1, {1}), "")
  lu.assertEquals(after(3, 0, {1}), "")
  lu.assertEquals(after(1, 0, {1}), text(1, 1, 1, 0))
  lu.assertEquals(after(2, 0, {1}), text(2, 1, 2, 0) .. text(2, 2, 2, 1) .. text(3, 1, 3, 0))
end

function TestGenerate:test_lists_stay_lists_in_json()
  local answer = {copy = 0, request = 1, text = "", tokens = {}, logprobs = {}, error = "x"}
  lu.assertEquals(answers.line_of(answer), '{"copy":0,"error":"x","logprobs":[],"request":1,"text":"","tokens":[]}')
  answer.tokens, answer.error, answer.logprobs = {5}, nil, {{token = 5, logprob = -0.5}}
  lu.assertEquals(answers.line_of(answer),
                  '{"copy":0,"logprobs":[{"logprob":-0.5,"token":5}],"request":1,"text":"","tokens":[5]}')
  local file = file_of '{"prompt": [5], "prompt_logprobs": true, "max_tokens": 1}'
  local text = generate(models.FOLDER .. "llama", "--file", file, "--json")
  lu.assertStrContains(text, '"prompt_logprobs":[]')
end

function TestGenerate:test_rates_and_progress()
  local errors = sink_of()
  local printer = answers.new{requests = {{n = 1}, {n = 1}, {n = 1}, {n = 1}}, has_text = true, total = 4, is_watched = true,
                              errors = errors}
  lu.assertStrContains(errors.text, "0 of 4 answers")
  printed(function()
    for request, seconds in ipairs{0.25, 3, 1.5} do printer:add(answer_of(request, 0, {1, 2}, seconds)) end
    printer:add({request = 4, copy = 0, tokens = {}, text = "", error = "no logits", first_seconds = 0})
  end)
  lu.assertStrContains(errors.text, "4 of 4 answers  ")
  lu.assertStrContains(errors.text, "\ngenerate: no logits\n")
  lu.assertEquals(printer:rates(2), "6 tokens in 2.00 s, 3.0 tokens/s, the first after 0.25 s; an answer's first, with the wait "
    .. "for earlier requests: median 1.50 s, longest 3.00 s")
  lu.assertFalse(printer:finish())
end

-- Ends the command as soon as it has written an answer, while it makes the others. If answers were held back, the file would stay
-- empty until the command ends with status 0. The others take many seconds.
function TestGenerate:test_an_interrupted_file_keeps_its_answers()
  local folder, engine = saved(4096)
  local out = temporary() .. ".out"
  local file = file_of('{"prompt": "abc", "max_tokens": 5}\n{"prompt": "abc", "max_tokens": 4000, "n": 32}\n')
  local words = ("generate %s --file %s --json >%s 2>/dev/null"):format(folder, file, out)
  local status = bash('"$program" ' .. words .. " &\nwhile kill -0 $! && [ ! -s " .. out
    .. " ]\ndo sleep 0.05\ndone\nkill -TERM $!\nwait $!\necho $?\n")
  lu.assertEquals(status, "143\n")
  local list = decoded(zt.fs.read(out))
  lu.assertEquals(#list, 1)
  lu.assertEquals(list[1].tokens, engine:generate{prompt = "abc", max_tokens = 5}[1].tokens)
end

-- A list of a request is taken as it is, or not at all.
function TestGenerate:test_nulls_and_holes_in_lists()
  local folder, engine = saved()
  for line, place in pairs{
    ['{"prompt": [1, 2, null]}'] = "prompt[3]", ['{"prompt": [1, null, 2]}'] = "prompt[2]",
    ['{"messages": [null]}'] = "messages[1]", ['{"prompt": "a", "stop": ["x", null]}'] = "stop[2]",
    ['{"prompt": "a", "stop_tokens": [null]}'] = "stop_tokens[1]",
  } do
    local text, status = generate(folder, "--file", file_of('{"prompt": "a"}\n' .. line))
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, place .. " is null")
    lu.assertStrContains(text, "generate: line 2 of ")
  end
  local text, status = generate(folder, "--file", file_of '{"prompt": "a", "stop": null, "logit_bias": {"5": null}}')
  lu.assertEquals(status, 0, text)
  local request = {prompt = "a", max_tokens = 1}
  lu.assertErrorMsgContains("requests[1] is nil", engine.generate, engine, {nil, request})
  lu.assertErrorMsgContains("requests must be a list, and has the key 'n'", engine.generate, engine, {request, n = 5})
  lu.assertErrorMsgContains("requests[1].prompt[2] is nil", engine.generate, engine, {prompt = {1, nil, 3}})
  lu.assertErrorMsgContains("request.stop_tokens[1] is nil", engine.submit, engine, {prompt = "a", stop_tokens = {nil, 3}})
end

function TestGenerate:test_the_standard_input()
  local folder, engine = saved()
  local text, status = command("generate", '\n{"prompt": "abc", "max_tokens": 5}\n\n{"prompt": "b", "max_tokens": 4, "n": 2}')(
    folder, "--file", "-", "--json")
  lu.assertEquals(status, 0, text)
  local expected = engine:generate{{prompt = "abc", max_tokens = 5}, {prompt = "b", max_tokens = 4, n = 2}}
  local list = decoded(text)
  lu.assertEquals(#list, 3)
  for place, answer in ipairs(list) do
    lu.assertEquals({answer.request, answer.copy, answer.tokens, answer.text},
                    {expected[place].request, expected[place].copy, expected[place].tokens, expected[place].text})
  end
  text, status = command("generate", '\n{"prompt": "abc", "top_p": 2}')(folder, "--file", "-")
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "generate: line 2 of the standard input: top_p must be above 0 and at most 1, got 2")
  text = command("generate", "")(folder, "--file", "-")
  lu.assertStrContains(text, "the standard input has no request")
end

-- A mistake in any line is found before an answer is printed.
function TestGenerate:test_mistakes_name_the_line()
  local folder = saved()
  for line, message in pairs{
    ['{"prompt": "x", "n": "two"}'] = "n must be an integer, got a string",
    ['{"prompt": "x", "n": -1}'] = "n must lie between 1 and 4096",
    ['{"prompt": "x", "salty": "a"}'] = "unknown option 'salty': did you mean 'salt'?",
    ['{"prompt": "x", "max_tokens": 64}'] = "1 tokens of prompt and max_tokens = 64 exceed max_context = 64",
    ['{"prompt": [300]}'] = "300",
  } do
    local file = file_of('{"prompt": "x", "max_tokens": 2}\n\n' .. line .. '\n{"prompt": "x", "n": 0}\n')
    local text, status = generate(folder, "--file", file, "--json")
    lu.assertEquals(status, 1, text)
    lu.assertStrContains(text, "generate: line 3 of " .. file .. ": ")
    lu.assertStrContains(text, message)
    lu.assertNotStrContains(text, "stack traceback")
    lu.assertNotStrContains(text, "requests[")
    lu.assertEquals(decoded(text), {})
  end
end

-- An answer ends before the text that comes first, whichever of several --stop it is.
function TestGenerate:test_several_stops()
  local folder, engine = saved()
  local whole = engine:generate{prompt = "abc", max_tokens = 40, temperature = 0}[1].text
  local early, late = whole:sub(3, 4), whole:sub(9, 10)
  for _, stops in ipairs{{early, late}, {late, early}} do
    local text, status = generate(folder, "--prompt", "abc", "--max-tokens", "40", "--temperature", "0", "--json", "--stop",
                                  stops[1], "--stop", stops[2])
    lu.assertEquals(status, 0, text)
    lu.assertEquals(decoded(text)[1].stop, early)
  end
end

-- Without a tokenizer, answers are printed as the numbers of their tokens.
function TestGenerate:test_tokens_without_a_tokenizer()
  local folder = models.FOLDER .. "llama"
  local expected = infer.engine{model = folder}:generate{prompt = {1, 2}, max_tokens = 3, temperature = 0}[1].tokens
  local file = file_of '{"prompt": [1, 2], "max_tokens": 3, "temperature": 0}\n'
  local text, status = generate(folder, "--file", file)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, table.concat(expected, " ") .. "\n")
  file = file_of '{"prompt": [1], "max_tokens": 2}\n\n{"prompt": "a"}\n'
  text, status = generate(folder, "--file", file)
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "has no tokenizer (tokenizer.json or tokenizer.model): give prompts as lists of tokens, by --file "
    .. "(line 3 of " .. file .. " has a text)")
end

-- Ranks that --tensor and --pipeline leave are replicas: they divide the requests, and each answer has the bits of one rank.
function TestGenerate:test_replicas_divide_the_requests()
  if bash "command -v mpirun" == "" then return end
  local folder = saved()
  local lines = {}
  for seed = 1, 7 do
    lines[seed] = ('{"prompt": "abc", "max_tokens": %d, "seed": %d, "n": %d, "logprobs": 1}\n'):format(
      9 * seed % 50 + 1, seed, seed % 3 + 1)
  end
  local file = file_of(table.concat(lines))
  local function run(ranks, more)
    local start = ranks > 1 and "mpirun --oversubscribe -n " .. ranks .. " " or ""
    local words = ("generate %s --file %s --json %s 2>/dev/null"):format(folder, file, more or "")
    local list = decoded(bash(start .. '"$program" ' .. words))
    for _, answer in ipairs(list) do answer.seconds, answer.first_seconds, answer.cached_tokens = nil, nil, nil end
    return list
  end
  local expected = run(1)
  lu.assertEquals(#expected, 14)
  lu.assertEquals(run(2), expected)
  lu.assertEquals(run(4, "--pipeline 2"), expected)
  local text = bash(('mpirun --oversubscribe -n 2 "$program" generate %s --prompt x 2>&1'):format(folder))
  lu.assertStrContains(text, "--prompt has one request at a time, and 2 ranks with --tensor 1 and --pipeline 1 are 2 replicas")
  lines[5] = '{"prompt": "abc", "top_p": 2}\n'
  lines[6] = '{"prompt": "abc", "top_k": -2}\n'
  zt.write_file(file, table.concat(lines))
  text = bash(('mpirun --oversubscribe -n 2 "$program" generate %s --file %s --json 2>&1'):format(folder, file))
  lu.assertStrContains(text, "line 5 of " .. file .. ": top_p must be")
  lu.assertNotStrContains(text, "line 6")
  lu.assertEquals(decoded(text), {})
end

local TestBench = {}

-- The defaults fit any model's context, and what is left out is said.
function TestBench:test_a_short_context()
  local bench = command "infer"
  local folder = saved()
  local text, status = bench("bench", folder, "--answers", "1,2")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "left out: prompts of 128 and 512 tokens, because the model's context has 64\n")
  lu.assertStrMatches(text, ".*\n63 +[%d.]+ +[%d.]+\n.*\n2 +[%d.]+ .*")
  text, status = bench("bench", folder, "--answers", "1", "--prompts", "8", "--context", "60")
  lu.assertEquals(status, 0, text)
  lu.assertNotStrContains(text, "left out")
  text, status = bench("bench", folder, "--context", "62")
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "--context 62 and --tokens 3 exceed the model's context of 64: lower them")
  text, status = bench("bench", folder, "--answers", "1,64", "--context", "60", "--prompts", "8")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "left out: 64 answers, because the first of them end before the prompts of all")
  lu.assertNotStrContains(text, "nan")
end

function TestBench:test_several_ranks_are_refused()
  if bash "command -v mpirun" == "" then return end
  local text = bash('mpirun --oversubscribe -n 2 "$program" infer bench ' .. saved() .. " 2>&1")
  lu.assertStrContains(text, "one rank is measured, and this run has 2")
end

function TestGenerate:test_adapter()
  local folder = "tests/golden/adapters/"
  local golden = zt.json.decode(zt.fs.read(folder .. "answers.json"))
  local file = file_of(zt.json.encode{prompt = golden.prompt, max_tokens = 12, temperature = 0, ignore_eos = true} .. "\n")
  for _, name in ipairs{"llama_all", "gpt2_conv1d"} do
    local base = folder .. golden.answers[name].base
    local text = generate(base, "--adapter", folder .. name, "--file", file, "--dtype", "fp32", "--json")
    lu.assertEquals(decoded(text)[1].tokens, golden.answers[name].tokens)
  end
  local text, status = generate(folder .. "llama_all", "--prompt", "x")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "holds a LoRA adapter: give the folder of its model as the model")
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGenerate", TestGenerate}, {"TestBench", TestBench}})
