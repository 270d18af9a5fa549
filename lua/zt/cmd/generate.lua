-- ztoolkit generate: continues texts with a model.
--
--   ztoolkit generate runs/gpt --prompt "Science"       prints the text as it is made
--   ztoolkit generate path/to/llama --file prompts.jsonl --json > answers.jsonl
--   ztoolkit generate path/to/llama --chat              holds a conversation on the terminal
--   mpirun -n 4 ztoolkit generate path/to/llama --prompt "Science" --tensor 2 --pipeline 2
local zt      = require "zt"
local command = require "zt.command"
local core    = require "zt.core"
local fail    = require "zt.fail"
local comm    = require "zt.comm"
local infer   = require "zt.infer"

local o = zt.cli {
  name = "generate", usage = "ztoolkit generate",
  about = "Continues texts with the model of a run, of a checkpoint, or of a folder as Hugging Face writes it.",
  options = {
    {"prompt", nil, "the text to continue", type = "string"},
    {"file", nil, "a file with a request in each line, such as {\"prompt\": \"Science\", \"max_tokens\": 20}", type = "string"},
    {"chat", false, "holds a conversation: each line of the input is a message; /clear begins a new one, /exit ends"},
    {"system", nil, "with --chat: the system's message", type = "string"},
    {"max_tokens", nil, "the most tokens of an answer; default: 128, or what the context leaves", type = "integer", at_least = 1},
    {"n", 1, "answers to each prompt", at_least = 1},
    {"temperature", 1, "divides the logits; 0: always the likeliest token", type = "number", at_least = 0},
    {"top_k", 0, "draws from so many likeliest tokens; 0: all", at_least = 0},
    {"top_p", 1, "draws from the likeliest tokens with at least this share of the probability", type = "number", above = 0},
    {"min_p", 0, "draws from tokens with at least this share of the likeliest one's probability", type = "number", at_least = 0},
    {"repetition_penalty", 1, "divides logits above 0 of tokens that were there, multiplies others", type = "number", above = 0},
    {"seed", 1, "the same seed gives the same answer", at_least = 0},
    {"stop", nil, "a text before which the answer ends", type = "string"},
    {"ignore_eos", false, "the model's end of a text does not end the answer"},
    {"dtype", nil, "type of the parameters: fp32, bf16, fp16 or fp64; default: that of the folder", type = "string",
     one_of = {"fp32", "bf16", "fp16", "fp64"}},
    {"weights", "plain", "the format of matrices: plain, int8, int4, nf4 or panels",
     one_of = {"plain", "int8", "int4", "nf4", "panels"}},
    {"group", nil, "with int8 and int4: columns that share a scale; default: 64", type = "integer"},
    {"max_context", nil, "the most tokens of a prompt and its answer; default: the model's", type = "integer", at_least = 1},
    {"speculative", 0, "guesses that a step checks, by what the text said before; 0: none", at_least = 0},
    {"numerics", "invariant", "invariant: an answer does not depend on the others", one_of = {"invariant", "fast"}},
    {"tensor", 1, "ranks over which matrices are cut", at_least = 1},
    {"pipeline", 1, "ranks over which layers are divided", at_least = 1},
    {"json", false, "prints each answer as a line of JSON"},
  },
  positional = {{"model", "the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"}},
}

local SAMPLING = {"max_tokens", "n", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed", "ignore_eos"}

-- Returns a request with the options of the command line that it does not have itself.
local function completed(request)
  for _, key in ipairs(SAMPLING) do
    if request[key] == nil and not (key == "ignore_eos" and request.stop_tokens) then request[key] = o[key] end
  end
  if o.stop and not request.stop then request.stop = {o.stop} end
  return request
end

-- Returns the requests of the file, one per line.
local function requests_of(path)
  local requests, number = {}, 0
  for line in (zt.fs.read(path) .. "\n"):gmatch "(.-)\r?\n" do
    number = number + 1
    if line:find "%S" then
      local is_json, request = pcall(zt.json.decode, line)
      if not is_json then fail("line %d of %s is not JSON: %s", number, path, tostring(request)) end
      if type(request) ~= "table" or (request.prompt == nil and request.messages == nil) then
        fail('line %d of %s is no request: give a JSON object with "prompt", a text or a list of tokens, or with "messages"',
             number, path)
      end
      requests[#requests + 1] = completed(request)
    end
  end
  if #requests == 0 then fail("%s has no request: give a JSON object in each line", path) end
  return requests
end

-- An error unless the options say once where requests come from.
local function check_source()
  local sources = (o.prompt and 1 or 0) + (o.file and 1 or 0) + (o.chat and 1 or 0)
  if sources ~= 1 then fail "give one of --prompt, --file and --chat" end
  if o.group and (o.weights == "plain" or o.weights == "panels") then
    fail "--group is the number of columns that share a scale: give --weights int8 or int4, too"
  end
  if o.system and not o.chat then fail "--system is the first message of a conversation: give --chat, or messages in --file" end
  if o.chat and (o.n > 1 or o.json) then fail "a conversation has one answer to each message: leave out --n and --json" end
end

local function mesh_of()
  local wanted = o.tensor * o.pipeline
  if zt.world.size ~= wanted then
    fail("--tensor %d and --pipeline %d need %d ranks, and this run has %d: start it by mpirun -n %d", o.tensor, o.pipeline,
         wanted, zt.world.size, wanted)
  end
  return wanted > 1 and comm.mesh{pp = o.pipeline, tp = o.tensor} or nil
end

local function engine_of(requests, mesh)
  local copies = 0
  for _, request in ipairs(requests) do copies = copies + request.n end
  return infer.engine{
    model = o.model, mesh = mesh, tensor = o.tensor > 1 and mesh.tp or nil, pipeline = o.pipeline > 1 and mesh.pp or nil,
    weights = o.weights ~= "plain" and {format = o.weights, group = o.group} or nil,
    dtype = o.dtype, max_context = o.max_context, max_sequences = math.min(64, copies), numerics = o.numerics,
    speculative = o.speculative > 0 and {tokens = o.speculative} or nil,
  }
end

-- Prints on rank 0. Fails if the output cannot be written, as on a full disk.
local function say(...)
  if zt.world.rank ~= 0 then return end
  local is_written, reason = io.stdout:write(...)
  if is_written then is_written, reason = io.stdout:flush() end
  if not is_written then fail("cannot write the output: %s", tostring(reason)) end
end

-- Prints answers as lines of JSON, or as texts with a title if there are several. The text of a single one is printed already.
local function show(answers, is_printed)
  for _, answer in ipairs(answers) do
    if o.json then
      say(zt.json.encode(answer), "\n")
    elseif not is_printed then
      if #answers > 1 then say(("== request %d, answer %d\n"):format(answer.request, answer.copy + 1)) end
      say(answer.text, "\n")
    end
    if answer.error and zt.world.rank == 0 then io.stderr:write("generate: ", answer.error, "\n") end
  end
end

-- Returns the next line of rank 0's input on all ranks; nil at its end.
local function next_line(mesh)
  local line
  if zt.world.rank == 0 then
    if core.isatty(0) then say "> " end
    line = io.stdin:read "*l"
  end
  if not mesh then return line end
  return mesh:world():gather_values{line = line}[1].line
end

-- Holds a conversation. An answer that fails, as for a lack of context, is no part of it.
local function chat(engine, mesh)
  local function begin() return o.system and {{role = "system", content = o.system}} or {} end
  local messages = begin()
  for line in function() return next_line(mesh) end do
    if line == "/exit" then break end
    if line == "/clear" then
      messages = begin()
    elseif line:find "%S" then
      messages[#messages + 1] = {role = "user", content = line}
      local is_done, answers = pcall(engine.generate, engine, completed{messages = messages},
                                     {on_text = function(piece) say(piece.text) end})
      local reason = not is_done and answers or answers[1].error
      if reason then
        messages[#messages] = nil
        if zt.world.rank == 0 then io.stderr:write("generate: ", tostring(reason), " (/clear begins a new conversation)\n") end
      else
        say "\n"
        messages[#messages + 1] = {role = "assistant", content = answers[1].text}
      end
    end
  end
end

local function rates(answers, seconds)
  local tokens, first = 0, 0
  for _, answer in ipairs(answers) do
    tokens, first = tokens + #answer.tokens, math.max(first, answer.first_seconds)
  end
  return ("%s tokens in %.2f s, %.1f tokens/s, the first after %.2f s"):format(zt.text.count(tokens), seconds, tokens / seconds,
                                                                              first)
end

command("generate", function()
  check_source()
  local requests = o.file and requests_of(o.file) or {completed{prompt = o.prompt or ""}}
  local mesh = mesh_of()
  local engine = engine_of(requests, mesh)
  if o.chat then return chat(engine, mesh) end
  if not engine.tokenizer then
    for _, request in ipairs(requests) do
      if type(request.prompt) == "string" then
        fail("'%s' has no tokenizer (tokenizer.json or tokenizer.model): give prompts as lists of tokens, by --file", o.model)
      end
    end
  end
  local streams = not o.json and #requests == 1 and o.n == 1 and engine.tokenizer ~= nil
  local begun, begin_text = false, type(requests[1].prompt) == "string" and requests[1].prompt or ""
  local function on_text(piece)
    if not begun then say(begin_text) end
    begun = true
    say(piece.text)
  end
  local begin = zt.now()
  local answers = engine:generate(requests, {on_text = streams and on_text or nil})
  if streams then say(begun and "" or begin_text, "\n") end
  show(answers, streams)
  if zt.world.rank == 0 then io.stderr:write(rates(answers, zt.now() - begin), "\n") end
  for _, answer in ipairs(answers) do
    if answer.error then os.exit(1) end
  end
end)
