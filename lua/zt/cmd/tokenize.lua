-- ztoolkit tokenize: converts a text to a token file, which data.tokens reads, or records to documents with a mask.
--
--   ztoolkit tokenize --input text.txt --output corpus.npy [options]
--   ztoolkit tokenize --chat x.jsonl --model path/to/llama --output sft.npy [options]
--
-- The first writes corpus.npy (uint16, or uint32 for more than 65,536 ids), corpus.json (the source and the settings) and the
-- tokenizer: with sentencepiece corpus.model, with a tokenizer.json corpus.tokenizer.json. The second also writes sft.mask.npy
-- and sft.offsets.npy, and of prompts sft.items.jsonl. The files appear when the command is done, the .npy file last.
local zt   = require "zt"
local chat = require "zt.cmd.tokenize.chat"
local data = require "zt.data"
local progress_lines = require "zt.cmd.tokenize.progress_lines"

local options = zt.cli {
  name = "tokenize", usage = "ztoolkit tokenize",
  about = "Converts a text (--input) or records (--chat) to tokens: OUTPUT.npy, with OUTPUT.json and the tokenizer next to it.",
  options = {
    {"input", nil, "the text, UTF-8", type = "string"},
    {"output", nil, "the token file, NAME.npy", type = "string"},
    {"mode", nil, "sentencepiece: learnt pieces of words (the default), or bytes: one token per byte", type = "string",
     one_of = {"sentencepiece", "bytes"}},
    {"tokenizer", nil, "use this tokenizer instead of learning one: a tokenizer.json, a .model file, a folder, or a token file",
     type = "string"},
    {"vocab", nil, "number of pieces to learn (4096)", type = "integer"},
    {"kind", nil, "how to learn the pieces, bpe (the default) or unigram", type = "string"},
    {"sample_bytes", nil, "bytes of the text to learn from, spread over the whole text (3145728)", type = "integer"},
    {"chat", nil, "instead of --input: records, a JSON object per line: {messages}, {prompt, completion}, "
      .. "{instruction, input, output}, {prompt, chosen, rejected} or {prompt}", type = "string"},
    {"model", nil, "with --chat: a folder of Hugging Face with the tokenizer and the chat template; it may be without a model",
     type = "string"},
    {"mask", nil, "with --chat, which tokens of conversations count: all; completion (the default): the completion, or the "
      .. "assistant's messages; assistant: these in the prompt, too; last: the last of them", type = "string",
     one_of = {"all", "completion", "assistant", "last"}},
    {"plain", false, "with --chat: texts are used as they are, without the chat template"},
    {"max_tokens", nil, "with --chat: a record with more tokens is an error", type = "integer", at_least = 1},
    {"skip_bad", false, "with --chat: leaves out records that are wrong, and says how many"},
    {"show", nil, "with --chat: prints so many records and what of them counts; without --output, nothing is written",
     type = "integer", at_least = 1},
  },
}

local OF_TEXTS = {"input", "mode", "tokenizer", "vocab", "kind", "sample_bytes"}
local OF_RECORDS = {"model", "mask", "plain", "max_tokens", "skip_bad", "show"}

local function refuse(...)
  io.stderr:write("tokenize: ", string.format(...), "\nRun it with --help to see the options.\n")
  os.exit(2)
end

local function refuse_given(names, reason)
  for _, name in ipairs(names) do
    if options[name] then refuse("option '--%s' has no meaning with%s", name:gsub("_", "-"), reason) end
  end
end

local function check_needed(...)
  for _, name in ipairs{...} do
    if not options[name] then refuse("option '--%s' is missing", name) end
  end
end

-- Refuses missing options, and options that have no meaning together with others.
local function check()
  if options.chat then
    refuse_given(OF_TEXTS, " --chat")
    check_needed("model")
    if not options.show then check_needed("output") end
    if options.plain and (options.mask == "assistant" or options.mask == "last") then
      refuse("option '--mask %s' has no meaning with --plain: texts have no messages", options.mask)
    end
  else
    refuse_given(OF_RECORDS, "out --chat")
    check_needed("input", "output")
  end
  if options.output and not options.output:match "%.npy$" then
    refuse("option '--output' must end in .npy, got '%s'", options.output)
  end
  if options.mode == "bytes" then refuse_given({"vocab", "kind", "sample_bytes", "tokenizer"}, " --mode bytes") end
  if options.tokenizer then refuse_given({"vocab", "kind", "sample_bytes"}, " --tokenizer") end
end

local function make_tokenizer()
  if options.mode == "bytes" then return data.tokenizer.bytes() end
  if options.tokenizer then return data.tokenizer.load(options.tokenizer) end
  local started = zt.now()
  local tokenizer = data.tokenizer.train {
    input = options.input,
    vocab = options.vocab,
    type = options.kind,
    sample_bytes = options.sample_bytes,
  }
  print(string.format("learnt %d pieces in %.1f s", tokenizer.vocab, zt.now() - started))
  return tokenizer
end

local function tokenize_text()
  data.check_tokenize(options.input, options.output) -- before learning, which takes minutes
  local tokenizer = make_tokenizer()
  local started = zt.now()
  local count = data.tokenize {
    input = options.input,
    output = options.output,
    tokenizer = tokenizer,
    progress = progress_lines(started),
  }
  print(string.format("wrote %s: %d tokens of %d kinds in %.1f s", options.output, count, tokenizer.vocab, zt.now() - started))
  local endings = {".json"}
  if tokenizer:model() ~= "" then endings[2] = tokenizer.kind == "tokenizer.json" and ".tokenizer.json" or ".model" end
  for _, ending in ipairs(endings) do print("wrote " .. (options.output:gsub("%.npy$", ending))) end
end

local function main()
  check()
  if options.chat then chat(options) else tokenize_text() end
end

-- Returns an error of the library with the names of this command's options.
local function by_options(message)
  message = message:gsub("mask = '(%w+)'", "--mask %1"):gsub("plain = true", "--plain"):gsub("skip_bad = true", "--skip-bad")
  for name, flag in pairs {vocab = "--vocab", type = "--kind", sample_bytes = "--sample-bytes"} do
    message = message:gsub("data%.tokenizer%.train%." .. name .. "%f[^%w_]", "option '" .. flag .. "'")
    message = message:gsub("%f[%w_]" .. name .. " = (%d+)", flag .. " %1")
  end
  return message
end

-- Under mpirun only rank 0 works. Errors are about files and options: print the message without a stack trace.
if zt.world.rank == 0 then
  local is_done, message = pcall(main)
  if not is_done then
    io.stderr:write("tokenize: ", by_options((tostring(message):gsub("^%S+:%d+: ", ""))), "\n")
    os.exit(1)
  end
end
