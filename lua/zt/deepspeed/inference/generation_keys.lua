--- The arguments of `generate` of transformers 5.23, those of its GenerationConfig among them, with what becomes of each.

local generation_keys = {}

--- Lists the keys that have an effect, as options of zt.check. `is_drawn` marks those with an effect on draws only.
-- `harmless` lists their values that are right for the likeliest token, too.
generation_keys.TAKEN = {
  {"max_new_tokens", "integer", "most tokens of an answer; default: 20, or what the context leaves", at_least = 1},
  {"max_length", "integer", "most tokens of a sample and its answer; without effect beside max_new_tokens", at_least = 1},
  {"min_new_tokens", "integer", "fewest tokens of an answer", at_least = 0},
  {"min_length", "integer", "fewest tokens of a sample and its answer; without effect beside min_new_tokens", at_least = 0},
  {"do_sample", "boolean", "draws tokens; false: the likeliest one"},
  {"temperature", "number", "divides the logits", above = 0, is_drawn = true, harmless = {0, 1}},
  {"top_k", "integer", "draws from so many likeliest tokens; 50 when absent, 0: all", at_least = 0, is_drawn = true,
   harmless = {0, 1, 50}},
  {"top_p", "number", "draws from the likeliest tokens with this share of the probability", above = 0, is_drawn = true,
   harmless = {1}},
  {"min_p", "number", "draws from tokens with this share of the likeliest one's probability", between = {0, 1}, is_drawn = true,
   harmless = {0}},
  {"num_return_sequences", "integer", "answers to each sample", at_least = 1},
  {"repetition_penalty", "number", "as in transformers", above = 0},
  {"eos_token_id", "any", "a token or a list of tokens that end an answer"},
  {"pad_token_id", "integer", "fills short answers; default: the first of eos_token_id"},
  {"stop_strings", "any", "a text or a list of texts that end an answer"},
}

--- Lists the arguments of a call that are no keys of a file.
generation_keys.OF_CALL = {
  {"input_ids", "any", "tokens: an int64 tensor [samples, tokens], or a list of lists of tokens", required = true},
  {"attention_mask", "any", "a tensor or lists like input_ids: 0 for padding; default: tokens that are pad_token_id are padding, "
   .. "unless this token ends answers"},
  {"seed", "integer", "the same seed gives the same answers", at_least = 0, is_drawn = true, harmless = {}},
  {"generation_config", "table", "further arguments; those beside it replace them"},
}

local BEAMS = "it concerns beam search, which is not offered"
local GUESSES = "it concerns guesses of tokens, which change no answer; give zt.init_inference the option speculative"
local CACHE = "keys and values are always kept in blocks, by the option cache of zt.init_inference"
local COMPILED = "nothing is compiled while an engine runs"
local ENCODER = "it concerns models with an encoder"
local OUTPUTS = "it has an effect in transformers only with return_dict_in_generate, which is off"
local RECORD = "it says where the values come from"

--- Lists the keys without effect on the tokens: {reason, values that say nothing}. Without a list of values, no value says
-- anything.
generation_keys.IDLE = {
  early_stopping = {BEAMS, {false}}, length_penalty = {BEAMS, {1}}, diversity_penalty = {BEAMS, {0}},
  num_beam_groups = {BEAMS, {1}}, low_memory = {BEAMS, {false}},
  use_mtp = {GUESSES, {false}}, is_assistant = {GUESSES, {false}}, num_assistant_tokens = {GUESSES, {20}},
  num_assistant_tokens_schedule = {GUESSES, {"constant"}}, assistant_confidence_threshold = {GUESSES, {0.4}},
  prompt_lookup_num_tokens = {GUESSES, {}}, max_matching_ngram_size = {GUESSES, {}}, assistant_early_exit = {GUESSES, {}},
  assistant_lookbehind = {GUESSES, {10}}, target_lookbehind = {GUESSES, {10}}, speculation_type = {GUESSES, {}},
  use_cache = {CACHE, {true}}, cache_config = {CACHE, {}}, max_cache_len = {CACHE, {}}, prefill_chunk_size = {CACHE, {}},
  compile_config = {COMPILED, {}}, disable_compile = {COMPILED, {true, false}},
  continuous_batching_config = {"requests of a call are always computed together", {}},
  decoder_start_token_id = {ENCODER, {}},
  output_attentions = {OUTPUTS, {false}}, output_hidden_states = {OUTPUTS, {false}}, output_scores = {OUTPUTS, {false}},
  output_logits = {OUTPUTS, {false}},
  renormalize_logits = {"probabilities are always normalised after the cut-offs", {true, false}},
  remove_invalid_values = {"an answer with logits that are not finite ends with an error", {false}},
  bos_token_id = {"it is the first token of a sample without tokens, and such samples are refused"},
  _from_model_config = {RECORD}, transformers_version = {RECORD}, _commit_hash = {RECORD},
}

--- The same for those that only a call has.
generation_keys.IDLE_OF_CALL = {
  synced_gpus = {"ranks that share parameters always wait for one another"},
  tokenizer = {"the engine has the tokenizer that finds stop_strings"},
  token_type_ids = {"models here have one type of tokens"},
  trust_remote_code = {"no code of a model's folder is run"},
}

local function is_share(value) return type(value) ~= "number" or value > 0 and value < 1 end

--- Lists the keys that would change the tokens, and are refused: {what there is not and what to do, off = values that turn it
-- off, is_on = a function that returns whether another value has an effect, only = "drawn" or "likeliest": it has one only
-- if do_sample is that}.
generation_keys.REFUSED = {
  num_beams = {"there is no beam search, as in DeepSpeed; give num_return_sequences with do_sample = true", off = {1}},
  max_time = {"an answer ends by its tokens, not by a clock; give max_new_tokens", off = {}},
  top_h = {"there is no cut-off by entropy; give top_p or min_p", off = {}, only = "drawn"},
  typical_p = {"there is no typical sampling; give top_p or min_p", off = {1}, only = "drawn"},
  epsilon_cutoff = {"there is no cut-off by absolute probability; give min_p", off = {0}, is_on = is_share, only = "drawn"},
  eta_cutoff = {"there is no eta sampling; give min_p", off = {0}, is_on = is_share, only = "drawn"},
  penalty_alpha = {"there is no contrastive search; give repetition_penalty", off = {0}, only = "likeliest"},
  dola_layers = {"logits are those of the last layer", off = {}},
  encoder_repetition_penalty = {"only repetition_penalty is there", off = {1}},
  no_repeat_ngram_size = {"no repetition is forbidden; give repetition_penalty", off = {0}},
  encoder_no_repeat_ngram_size = {"no repetition is forbidden; give repetition_penalty", off = {0}},
  bad_words_ids = {"give requests with logit_bias, {[token] = -1e9}, for single tokens", off = {}},
  suppress_tokens = {"give requests with logit_bias, {[token] = -1e9}", off = {}},
  begin_suppress_tokens = {"all tokens of an answer are drawn alike; give min_new_tokens if these end answers", off = {}},
  sequence_bias = {"give requests with logit_bias, {[token] = number}, for single tokens", off = {}},
  forced_bos_token_id = {"no token is forced; put it at the end of the samples", off = {}},
  forced_eos_token_id = {"no token is forced; append it to the answers", off = {}},
  exponential_decay_length_penalty = {"no penalty depends on the length; give max_new_tokens", off = {}},
  constraints = {"there is no constrained search", off = {}}, force_words_ids = {"there is no constrained search", off = {}},
  token_healing = {"samples are taken as they are", off = {false}},
  guidance_scale = {"there is no guidance by a second prompt", off = {1}},
  watermarking_config = {"answers carry no watermark", off = {}},
  assistant_ensemble_weight = {"a guess is kept only if it is what would have been drawn", off = {}},
  cache_implementation = {"to keep keys and values in 8 bits give zt.init_inference the option cache = {dtype = \"int8\"}",
                          off = {}, is_on = function(value) return value == "quantized" end},
  return_dict_in_generate = {"the result is a tensor of tokens; for log-probabilities give requests of zt.infer with logprobs",
                             off = {false}},
}

local FUNCTIONS = "logits are changed by the arguments only; call engine.trainer:infer to write a loop of your own"

--- The same for those that only a call has.
generation_keys.REFUSED_OF_CALL = {
  inputs_embeds = {"give input_ids", off = {}}, past_key_values = {"the engine finds the keys and values of common begins by "
    .. "itself; leave it out", off = {}},
  position_ids = {"positions count the tokens without padding; leave it out", off = {}},
  logits_processor = {FUNCTIONS, off = {}}, stopping_criteria = {FUNCTIONS, off = {}},
  prefix_allowed_tokens_fn = {FUNCTIONS, off = {}}, custom_generate = {FUNCTIONS, off = {}},
  streamer = {"give on_text to engine:generate(requests, {on_text = function(piece) end})", off = {}},
  assistant_model = {"guesses need no second model; give zt.init_inference the option speculative", off = {}},
  negative_prompt_ids = {"there is no guidance by a second prompt", off = {}},
  negative_prompt_attention_mask = {"there is no guidance by a second prompt", off = {}},
  use_model_defaults = {"the values of the model's folder always count; give arguments that replace them", off = {true},
                        is_on = function(value) return value == false end},
}

--- The reason for a key of a file that is none of these.
generation_keys.UNKNOWN = "transformers' generate does not know it"

--- Returns whether a file may set `key`.
function generation_keys.is_of_file(key)
  if generation_keys.IDLE[key] or generation_keys.REFUSED[key] then return true end
  for _, row in ipairs(generation_keys.TAKEN) do
    if row[1] == key then return true end
  end
  return false
end

--- Returns whether a call may have the argument `key`.
function generation_keys.is_of_call(key)
  for _, row in ipairs(generation_keys.OF_CALL) do
    if row[1] == key then return true end
  end
  return generation_keys.is_of_file(key) or generation_keys.IDLE_OF_CALL[key] ~= nil
    or generation_keys.REFUSED_OF_CALL[key] ~= nil
end

--- Returns whether `value` is in the list.
function generation_keys.is_among(value, list)
  for _, each in ipairs(list) do
    if each == value then return true end
  end
  return false
end

--- Returns whether a refused key with this value would change the tokens. `row` is of REFUSED.
function generation_keys.changes_tokens(row, value, is_drawn)
  if generation_keys.is_among(value, row.off) or row.is_on and not row.is_on(value) then return false end
  return row.only == nil or (row.only == "drawn") == is_drawn
end

return generation_keys
