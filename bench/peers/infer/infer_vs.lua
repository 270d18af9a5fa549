-- The ztoolkit side of infer_vs.py. Reads lines {"prompts", "tokens"}: answers the prompts, lists of tokens, by so
-- many tokens each, the likeliest ones, and prints {"seconds", "first"}: the tokens of the first answer.
local zt = require "zt"
local infer = require "zt.infer"

local o = zt.cli{
  name = "infer_vs", about = "Answers prompts for bench/peers/infer/infer_vs.py.",
  options = {
    {"dtype", "bf16", "type of the parameters", one_of = {"fp32", "bf16"}},
    {"weights", "plain", "the format of matrices", one_of = {"plain", "panels", "int8", "int4", "nf4"}},
  },
  positional = {{"model", "the folder of a model of Hugging Face's"}},
}

local engine = infer.engine{
  model = o.model, dtype = o.dtype, weights = o.weights ~= "plain" and {format = o.weights} or nil, max_sequences = 64,
  cache = {prefix = false, memory = 2e9},
}
for line in io.lines() do
  local row = zt.json.decode(line)
  local requests = {}
  for place, prompt in ipairs(row.prompts) do
    requests[place] = {prompt = prompt, max_tokens = row.tokens, temperature = 0, ignore_eos = true}
  end
  local begin = zt.now()
  local answers = engine:generate(requests)
  local seconds = zt.now() - begin
  io.stdout:write(zt.json.encode{seconds = seconds, first = answers[1].tokens}, "\n")
  io.stdout:flush()
end
