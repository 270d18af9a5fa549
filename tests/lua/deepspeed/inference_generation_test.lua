-- Tests that generate of zt.init_inference takes the arguments of transformers' generate and the generation_config.json of the
-- model's folder as transformers does. For one rank: folders are written by each rank.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
require "zt.gemm"
local generation = require "zt.deepspeed.inference.generation"
local keys = require "zt.deepspeed.inference.generation_keys"
local models = require "support.huggingface_models"
local temporary = require "support.temporary"

local cases = models.read_json "tests/golden/generation.json"

-- Returns a folder with the files of a model, this generation_config.json and these changes of config.json.
local function folder_of(name, file, changes)
  local from, folder = models.FOLDER .. name .. "/", temporary()
  local config = models.config_of(name)
  for key, value in pairs(changes or {}) do config[key] = value end
  if config.sliding_window == nil then config.sliding_window = 0 / 0 end -- null
  zt.fs.make_folder(folder)
  zt.write_file(folder .. "/config.json", zt.json.encode(config))
  if file then zt.write_file(folder .. "/generation_config.json", zt.json.encode(file)) end
  for _, part in ipairs(zt.fs.list(from)) do
    if part:find "^model" then zt.write_file(folder .. "/" .. part, zt.fs.read(from .. part)) end
  end
  return folder
end

local function engine_of(name, file, changes)
  return zt.init_inference{model = folder_of(name, file, changes), dtype = "fp32"}
end

local function text_of(case)
  return zt.json.encode{model = case.model, file = case.file, config = case.config, arguments = case.arguments}
end

local TestGolden = {}

-- transformers' generate made the expected tokens (tests/oracle/make_generation.py).
function TestGolden:test_calls_have_the_tokens_of_transformers()
  local engines, count = {}, 0
  for _, case in ipairs(cases) do
    local name = case.model
    if case.config == nil then
      engines[name] = engines[name] or zt.init_inference{model = models.FOLDER .. name, dtype = "fp32"}
      lu.assertEquals(engines[name]:generate(case.arguments):tolist(), case.tokens, text_of(case))
      count = count + 1
    end
  end
  lu.assertEquals(count, 45)
end

function TestGolden:test_files_have_the_tokens_of_transformers()
  local count = 0
  for _, case in ipairs(cases) do
    if case.config and case.tokens then
      local got = engine_of(case.model, case.file, case.config):generate(case.arguments)
      lu.assertEquals(got:tolist(), case.tokens, text_of(case))
      count = count + 1
    end
  end
  lu.assertEquals(count, 272)
end

-- Draws differ, because random numbers do. Each token that is drawn has transformers' log-probability, and likely ones are drawn.
function TestGolden:test_draws_have_the_probabilities_of_transformers()
  local count = 0
  for _, case in ipairs(cases) do
    if case.draws then
      local engine = engine_of(case.model, case.file)
      local requests = generation.requests(case.arguments, engine.engine, engine.config.generation, error)
      for _, request in ipairs(requests) do request.n, request.max_tokens, request.logprobs = 150, 1, 0 end
      local is_drawn = {}
      for _, answer in ipairs(engine:generate(requests)) do
        local place, token = answer.request, answer.tokens[1]
        is_drawn[place] = is_drawn[place] or {}
        is_drawn[place][token] = answer.logprobs[1].sampled_logprob
      end
      for place, tokens in ipairs(case.draws.tokens) do
        local expected = {}
        for at, token in ipairs(tokens) do
          expected[token] = case.draws.logprobs[place][at]
          if expected[token] > math.log(0.1) then lu.assertNotNil(is_drawn[place][token], text_of(case)) end
        end
        for token, logprob in pairs(is_drawn[place]) do
          lu.assertNotNil(expected[token], text_of(case))
          lu.assertAlmostEquals(logprob, expected[token], 2e-5, text_of(case))
        end
        count = count + 1
      end
    end
  end
  lu.assertEquals(count, 192)
end

local TestFiles = {}

local IDS = {{5, 17, 3, 44}}

-- Fails unless a call with a folder that has this generation_config.json fails with the text, and one without it does not.
local function check_refused(file, text, arguments, instead)
  local engine = engine_of("llama", file)
  local call = {input_ids = IDS, max_new_tokens = 2}
  for key, value in pairs(arguments or {}) do call[key] = value end
  lu.assertErrorMsgContains(text, engine.generate, engine, call)
  lu.assertErrorMsgContains("generation_config.json'.", engine.generate, engine, call)
  for key, value in pairs(instead or {}) do call[key] = value end
  if instead then engine:generate(call) end
  lu.assertEquals(#engine:generate{{prompt = IDS[1], max_tokens = 3}}[1].tokens, 3) -- the file is not for requests
end

function TestFiles:test_what_would_change_the_tokens_is_refused_by_name()
  check_refused({num_beams = 4}, ".num_beams = 4: there is no beam search, as in DeepSpeed", {}, {num_beams = 1})
  check_refused({num_beams = 4}, "num_beams = 1 as an argument of engine:generate replaces it")
  check_refused({no_repeat_ngram_size = 3}, ".no_repeat_ngram_size = 3: no repetition is forbidden", {},
                {no_repeat_ngram_size = 0})
  check_refused({suppress_tokens = {3}}, ".suppress_tokens = a list: give requests with logit_bias")
  check_refused({forced_eos_token_id = 3}, "take the key out of the file")
  check_refused({typical_p = 0.9}, ".typical_p = 0.9: there is no typical sampling", {do_sample = true}, {do_sample = false})
  check_refused({penalty_alpha = 0.6, top_k = 4}, ".penalty_alpha = 0.6: there is no contrastive search", {},
                {do_sample = true})
  check_refused({watermarking_config = {bias = 2}}, "answers carry no watermark")
  check_refused({cache_implementation = "quantized"}, "cache = {dtype = \"int8\"}", {}, {cache_implementation = "static"})
  check_refused({return_dict_in_generate = true}, "the result is a tensor", {}, {return_dict_in_generate = false})
end

function TestFiles:test_wrong_values_are_errors_that_name_the_file()
  check_refused({repetition_penalty = "1.2"}, "repetition_penalty must be a number, got a string", {}, {repetition_penalty = 1})
  check_refused({do_sample = "true"}, "do_sample must be true or false", {}, {do_sample = false})
  check_refused({do_sample = true, temperature = 0}, "temperature must be above 0", {}, {do_sample = false})
  check_refused({do_sample = true, top_k = 1.5}, "top_k must be an integer, got 1.5", {}, {top_k = 2})
end

-- Returns the fates and the reasons of the keys of a file.
local function notes_of(engine)
  local fates, reasons = {}, {}
  for _, note in ipairs(engine.config.generation.notes) do fates[note.key], reasons[note.key] = note.fate, note.reason end
  return fates, reasons
end

function TestFiles:test_notes_have_a_fate_and_a_reason_for_every_key()
  local file = {temperature = 0.5, length_penalty = 2, num_beams = 1, chat_format = "chatml", transformers_version = "4.1"}
  local fates, reasons = notes_of(engine_of("llama", file))
  lu.assertEquals(fates, {temperature = "taken", length_penalty = "no effect", num_beams = "refused", chat_format = "no effect",
                          transformers_version = "no effect"})
  lu.assertEquals(reasons.chat_format, "transformers' generate does not know it")
  lu.assertStrContains(reasons.length_penalty, "it concerns beam search")
  local of_config = engine_of("llama", nil, {max_length = 9}).config.generation -- without the file, config.json
  lu.assertEquals({of_config.values.max_length, of_config.values.hidden_size, of_config.path:match "[^/]*$"},
                  {9, nil, "config.json"})
end

-- Returns the texts that a call tells about what has no effect.
local function told(engine, arguments)
  local texts = {}
  arguments.input_ids = IDS
  generation.requests(arguments, engine.engine, engine.config.generation, function(text) texts[#texts + 1] = text end)
  return table.concat(texts, "\n")
end

function TestFiles:test_what_has_no_effect_is_told()
  local engine = engine_of("llama", {length_penalty = 2, early_stopping = false, max_new_tokens = 5, bos_token_id = 1})
  local text = told(engine, {})
  lu.assertStrContains(text, "length_penalty = 2 has no effect: it concerns beam search, which is not offered")
  lu.assertNil(text:find "early_stopping" or text:find "bos_token_id" or text:find "\n")
  lu.assertStrContains(told(engine, {max_length = 9}), "max_new_tokens = 5 of '" .. engine.config.generation.path .. "' wins")
  lu.assertStrContains(told(engine, {prompt_lookup_num_tokens = 3, length_penalty = 1}), "give zt.init_inference the option")
end

-- The limits of a file end where the context does, those of a call do not.
function TestFiles:test_lengths_end_with_the_context()
  local folder = folder_of("llama", {max_length = 4096})
  local engine = zt.init_inference{model = folder, max_out_tokens = 12}
  lu.assertEquals(engine:generate{input_ids = IDS}:size(1), 12)
  lu.assertErrorMsgContains("exceed max_context = 12", engine.generate, engine, {input_ids = IDS, max_new_tokens = 9})
  engine = zt.init_inference{model = models.FOLDER .. "llama", max_out_tokens = 10}
  lu.assertEquals(engine:generate{input_ids = IDS}:size(1), 10)
  local long = {{}}
  for place = 1, 10 do long[1][place] = place end
  lu.assertErrorMsgContains("exceed max_context = 10", engine.generate, engine, {input_ids = long})
end

-- Runs, packed folders and trainers have no such file: ends are those of the folder, and the rest is as in transformers.
function TestFiles:test_folders_without_the_file()
  local nn, ckpt = require "zt.nn", require "zt.ckpt"
  local folder = temporary()
  local model = nn.gpt{layers = 1, hidden = 64, heads = 2, ffn = 128, vocab = 61, seq = 64, family = "llama"}
  local trainer = zt.trainer(zt.program(model), {optimizer = require("zt.optim").adamw{lr = 0.01}})
  ckpt.save(folder .. "/run", {trainer = trainer}, {step = 0, async = false})
  local packed = folder .. "/packed"
  require("zt.infer.packed_folder").write(require("zt.ckpt.pretrained.folder").open(folder .. "/run"), packed, {format = "int8"})
  for _, from in ipairs{trainer, folder .. "/run", packed} do
    lu.assertEquals(zt.init_inference{model = from}:generate{input_ids = IDS, eos_token_id = -1}:size(1), 24)
  end
  zt.write_file(packed .. "/generation_config.json", '{"max_new_tokens": 3}')
  lu.assertEquals(zt.init_inference{model = packed}:generate{input_ids = IDS}:size(1), 7)
  local all = zt.init_inference{model = trainer}:generate{input_ids = {{5, 17, 3, 4}}}:tolist()[1]
  local ended = zt.init_inference{model = trainer, stop_tokens = {all[6]}}
  lu.assertEquals(ended:generate{input_ids = {{5, 17, 3, 4}}}:tolist()[1], {unpack(all, 1, all[5] == all[6] and 5 or 6)})
end

local TestCalls = {}

-- Every field of transformers' GenerationConfig is known.
function TestCalls:test_the_list_is_that_of_the_package()
  local root = arg[0]:match "^(.*)tests/lua/" or ""
  local pipe = io.popen("ls " .. root .. ".venv-huggingface/lib/python3*/site-packages/transformers/generation/"
    .. "configuration_utils.py 2>/dev/null")
  local path = pipe:read "*l"
  pipe:close()
  if not path then return end
  local text, count = zt.fs.read(path), 0
  local class = text:match "\nclass GenerationConfig(.-)\nclass "
  for name in class:match("def __init__(.-)\n    def "):gmatch 'kwargs%.pop%("([%w_]+)"' do
    lu.assertTrue(keys.is_of_file(name), name)
    count = count + 1
  end
  lu.assertTrue(count > 65)
end

-- Returns whether the call gives the tokens that the arguments `same` give.
local function check_same(engine, arguments, same)
  local rows = {}
  for place, each in ipairs{arguments, same} do
    local call = {input_ids = IDS, max_new_tokens = 4}
    for key, value in pairs(each) do call[key] = value end
    rows[place] = engine:generate(call):tolist()
  end
  lu.assertEquals(rows[1], rows[2])
end

function TestCalls:test_other_forms_of_arguments()
  local engine, tensor = engine_of("llama"), zt.tensor
  local plain = engine:generate{input_ids = IDS, max_new_tokens = 4}:tolist()[1]
  local eos = plain[6]
  check_same(engine, {eos_token_id = tensor({eos}, {dtype = "int64"})}, {eos_token_id = eos})
  check_same(engine, {eos_token_id = {-1, eos}}, {eos_token_id = eos})
  check_same(engine, {eos_token_id = -1}, {})
  check_same(engine, {eos_token_id = {}}, {})
  local ones = tensor{{1, 1, 1, 1}} -- fp32
  for _, mask in ipairs{{{1, 1, 1, 1}}, ones, ones:eq(1), ones:to "int64"} do
    check_same(engine, {attention_mask = mask}, {})
  end
  check_same(engine, {temperature = 0, top_k = 50, top_p = 1, min_p = 0}, {}) -- right for the likeliest token, too
  check_same(engine, {do_sample = true, top_p = 1.5, seed = 3}, {do_sample = true, seed = 3})
  check_same(engine, {synced_gpus = true, use_cache = false, token_type_ids = {{0, 0, 0, 0}}, renormalize_logits = true}, {})
  check_same(engine, {num_beams = 1, typical_p = 0.5, guidance_scale = 1, cache_implementation = "static"}, {})
  lu.assertEquals(engine:generate(IDS, {max_new_tokens = 4}):tolist()[1], plain)
  lu.assertEquals(engine:generate{inputs = IDS, max_new_tokens = 4}:tolist()[1], plain)
  local right = engine:generate{input_ids = {{5, 17, 3, 44, 0, 0}}, attention_mask = {{1, 1, 1, 1, 0, 0}}, max_new_tokens = 4}
  lu.assertEquals({unpack(right:tolist()[1], 7)}, {unpack(plain, 5)}) -- goes on after the text, where transformers warns
end

function TestCalls:test_mistakes()
  local engine, window = engine_of("llama"), engine_of("mistral")
  local function refused(text, arguments)
    arguments.input_ids = arguments.input_ids or IDS
    lu.assertErrorMsgContains(text, engine.generate, engine, arguments)
  end
  refused("input_ids[2] must be a list of at least one token, got an empty list", {input_ids = {{1, 2}, {}}})
  refused("input_ids must be an int64 tensor", {input_ids = {}})
  refused("must be a list of at least one token", {input_ids = zt.tensor({{1, 2}}, {dtype = "int64"}):narrow(1, 0, 0)})
  refused("holds '2', where an integer is needed", {input_ids = {{1, "2"}}})
  refused("max_length = 2 leaves no token for an answer, the samples have 4", {max_length = 2})
  refused("max_length must be an integer, got a string", {max_length = "7"})
  refused("eos_token_id must be a token or a list of tokens, got a string at place 2", {eos_token_id = {2, "3"}})
  refused("names the token 99, but the model has 61 tokens", {eos_token_id = 99})
  refused("min_new_tokens = 4 needs answers of 4 tokens, which may have at most 3", {max_new_tokens = 3, min_new_tokens = 4})
  refused("min_length = 40 needs answers of 36 tokens", {max_new_tokens = 3, min_length = 40})
  refused("stop_strings are texts, and the engine has no tokenizer", {stop_strings = "a"})
  refused("inputs is another name of input_ids", {inputs = IDS})
  lu.assertErrorMsgContains("option 'input_ids' is missing", engine.generate, engine, {max_new_tokens = 3})
  refused("attention_mask[1] leaves no token", {attention_mask = {{0, 0, 0, 0}}})
  refused("attention_mask has 1 samples, and input_ids 2", {input_ids = {{1, 2}, {3, 4}}, attention_mask = {{1, 1}}})
  refused("has an effect only with do_sample = true", {temperature = 0.5})
  refused("engine:generate.generation_config: unknown option 'max_new_token'", {generation_config = {max_new_token = 2}})
  refused("engine:generate.generation_config.num_beams = 2: there is no beam", {generation_config = {num_beams = 2}})
  refused("streamer = a function: give on_text to engine:generate", {streamer = print})
  refused("logits_processor = a table: logits are changed by the arguments only", {logits_processor = {}})
  refused("min_p must lie between 0 and 1", {do_sample = true, min_p = 2})
  lu.assertErrorMsgContains("padding between its tokens, which the window of attention counts", window.generate, window,
                            {input_ids = IDS, attention_mask = {{1, 0, 1, 1}}})
end

-- Each rank and each engine has values of its own.
function TestCalls:test_two_engines()
  local first = engine_of("llama", {max_new_tokens = 2, pad_token_id = 7})
  local second = engine_of("qwen2", {max_new_tokens = 3})
  for _ = 1, 2 do
    lu.assertEquals(first:generate{input_ids = IDS}:size(1), 6)
    lu.assertEquals(second:generate{input_ids = IDS}:size(1), 7)
  end
  first:destroy()
  lu.assertEquals(second:generate{input_ids = IDS}:size(1), 7)
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGolden", TestGolden}, {"TestFiles", TestFiles}, {"TestCalls", TestCalls}})
