-- ztoolkit generate: continues texts with a model.
--
--   ztoolkit generate runs/gpt --prompt "Science"       prints the text as it is made
--   ztoolkit generate path/to/llama --file prompts.jsonl --json > answers.jsonl
--   ztoolkit generate path/to/llama --chat              holds a conversation on the terminal
--   mpirun -n 4 ztoolkit generate path/to/llama --prompt "Science" --tensor 2 --pipeline 2
--   mpirun -n 4 ztoolkit generate path/to/llama --file prompts.jsonl    divides the requests over the ranks
local zt           = require "zt"
local answers      = require "zt.cmd.generate.answers"
local chat         = require "zt.cmd.generate.chat"
local command      = require "zt.command"
local comm         = require "zt.comm"
local core         = require "zt.core"
local fail         = require "zt.fail"
local infer        = require "zt.infer"
local on_rank_zero = require "zt.on_rank_zero"
local requests     = require "zt.cmd.generate.requests"

local o = zt.cli {
  name = "generate", usage = "ztoolkit generate",
  about = "Continues texts with the model of a run, of a checkpoint, or of a folder as Hugging Face writes it.",
  options = {
    {"prompt", nil, "the text to continue", type = "string"},
    {"file", nil, "a file with a request in each line, such as {\"prompt\": \"Science\", \"max_tokens\": 20}; -: the input",
     type = "string"},
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
    {"stop", nil, "a text before which the answer ends", type = "string", repeats = true},
    {"ignore_eos", false, "the model's end of a text does not end the answer"},
    {"dtype", nil, "type of the parameters: fp32, bf16, fp16 or fp64; default: that of the folder", type = "string",
     one_of = {"fp32", "bf16", "fp16", "fp64"}},
    {"weights", "plain", "the format of matrices: plain, int8, int4, nf4 or panels",
     one_of = {"plain", "int8", "int4", "nf4", "panels"}},
    {"adapter", nil, "the folder of a LoRA adapter as PEFT saves it, which is added to the weights", type = "string"},
    {"group", nil, "with int8 and int4: columns that share a scale; default: 64", type = "integer"},
    {"max_context", nil, "the most tokens of a prompt and its answer; default: the model's", type = "integer", at_least = 1},
    {"speculative", 0, "guesses that a step checks, by what the text said before; 0: none", at_least = 0},
    {"numerics", "invariant", "invariant: an answer does not depend on the others", one_of = {"invariant", "fast"}},
    {"tensor", 1, "ranks over which matrices are cut", at_least = 1},
    {"pipeline", 1, "ranks over which layers are divided", at_least = 1},
    {"json", false, "prints each answer as a line of JSON, in the order of the requests, as soon as it is complete"},
  },
  positional = {{"model", "the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"}},
}

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

-- Returns the mesh, nil for one rank, and the number of replicas: the ranks that tensor and pipeline leave.
local function mesh_of()
  local size, wanted = zt.world.size, o.tensor * o.pipeline
  if size % wanted ~= 0 then
    fail("--tensor %d and --pipeline %d need %d ranks, and this run has %d: start it by mpirun -n %d, or a multiple", o.tensor,
         o.pipeline, wanted, size, wanted)
  end
  local replicas = size / wanted
  if replicas > 1 and not o.file then
    fail("--%s has one request at a time, and %d ranks with --tensor %d and --pipeline %d are %d replicas, which divide "
      .. "requests: start it by mpirun -n %d, or give --file", o.chat and "chat" or "prompt", size, o.tensor, o.pipeline,
      replicas, wanted)
  end
  if size == 1 then return nil, 1 end
  return comm.mesh{dp = replicas, pp = o.pipeline, tp = o.tensor, order = {"dp", "pp", "tp"}}, replicas
end

-- Returns the requests, and for those of a file the names of their lines.
local function requests_of(mesh)
  if not o.file then return {requests.completed(o, {prompt = o.prompt or ""})} end
  local given = on_rank_zero(mesh and mesh:world(), function()
    local content, name = requests.content_of(o.file)
    return {content = content, name = name}
  end)
  return requests.parse(o, given.content, given.name)
end

local function engine_of(count, mesh, replicas)
  return infer.engine{
    model = o.model, adapter = o.adapter, mesh = mesh,
    tensor = o.tensor > 1 and mesh.tp or nil, pipeline = o.pipeline > 1 and mesh.pp or nil,
    data = replicas > 1 and mesh.dp or nil, weights = o.weights ~= "plain" and {format = o.weights, group = o.group} or nil,
    dtype = o.dtype, max_context = o.max_context, max_sequences = math.min(64, count), numerics = o.numerics,
    speculative = o.speculative > 0 and {tokens = o.speculative} or nil,
  }
end

-- Gives each replica its requests. Returns their places in the list by the engine's numbers. Fails on all ranks, before anything
-- is computed, with what is wrong with the first bad request.
local function submit(engine, list, lines, mesh, replicas)
  local places, bad, reason = requests.submit(engine, list, 1 + (replicas > 1 and mesh.dp.rank or 0), replicas)
  if replicas > 1 then
    for _, each in ipairs(mesh:world():gather_values{bad = bad, reason = reason}) do
      if each.bad and (not bad or each.bad < bad) then bad, reason = each.bad, each.reason end
    end
  end
  if bad then requests.refuse(bad, reason, lines) end
  return places
end

-- Steps of each replica between two times at which rank 0 gets the answers of all.
local STEPS = 8

-- Makes the answers, and calls on_answer for each when it is complete, and on_text for each piece of text of this replica. With
-- replicas, rank 0 gets the answers of all. Replicas that are done go on until all are: their steps may need one another.
local function run(engine, places, mesh, replicas, on_answer, on_text)
  local is_first = replicas == 1 or (mesh.pp.rank == 0 and mesh.tp.rank == 0) -- the ranks of a replica have the same answers
  local is_busy = true
  while is_busy do
    local done = {}
    for _ = 1, replicas > 1 and STEPS or 1 do
      local step = engine:step()
      is_busy = step ~= nil
      for _, piece in ipairs(step and step.texts or {}) do on_text(piece) end
      for _, answer in ipairs(step and step.answers or {}) do
        answer.request = places[answer.request]
        if answer.error then answer.error = answer.error:gsub("^request[ %d]*: ", "") end
        done[#done + 1] = is_first and answer or nil
      end
    end
    local all = replicas > 1 and mesh:world():gather_values{answers = done, is_busy = is_busy} or {{answers = done}}
    for _, each in ipairs(all) do
      is_busy = is_busy or each.is_busy == true
      for _, answer in ipairs(each.answers) do on_answer(answer) end
    end
  end
end

local function answer_all(engine, list, lines, mesh, replicas)
  requests.check_folder(engine, o.model, list, lines)
  local streams = not o.json and not lines and o.n == 1
  local printer = answers.new{
    requests = list, lines = lines, is_json = o.json, has_text = engine.tokenizer ~= nil, is_printed = streams,
    total = requests.answers_of(list), is_watched = zt.world.rank == 0 and core.isatty(2) and not core.isatty(1),
  }
  local places = submit(engine, list, lines, mesh, replicas)
  local begun = not streams
  local function begin()
    if not begun then answers.say(list[1].prompt) end
    begun = true
  end
  run(engine, places, mesh, replicas, function(answer) printer:add(answer) end, function(piece)
    if not streams then return end
    begin()
    answers.say(piece.text)
  end)
  begin()
  if streams then answers.say "\n" end
  return printer:finish()
end

command("generate", function()
  check_source()
  local mesh, replicas = mesh_of()
  local list, lines = requests_of(mesh)
  local engine = engine_of(requests.answers_of(list), mesh, replicas)
  local is_right
  if o.chat then
    is_right = chat(engine, mesh, o)
  else
    is_right = answer_all(engine, list, lines, mesh, replicas)
  end
  if not is_right then os.exit(1) end
end)
