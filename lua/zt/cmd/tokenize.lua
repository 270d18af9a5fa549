-- ztoolkit tokenize: converts a text to a token file, which data.tokens reads.
--
--   ztoolkit tokenize --input text.txt --output corpus.npy [options]
--
-- Writes corpus.npy (uint16, or uint32 for more than 65,536 ids), corpus.json (the source and the settings) and the tokenizer:
-- with sentencepiece corpus.model, with a tokenizer.json corpus.tokenizer.json. The files appear when the command is done, the
-- .npy file last.
local zt   = require "zt"
local data = require "zt.data"

local options = zt.cli {
  name = "tokenize", usage = "ztoolkit tokenize",
  about = "Converts a text to tokens: OUTPUT.npy, with OUTPUT.json and the tokenizer next to it.",
  options = {
    {"input", nil, "the text, UTF-8", type = "string"},
    {"output", nil, "the token file, NAME.npy", type = "string"},
    {"mode", "sentencepiece", "learnt pieces of words, or one token per byte", one_of = {"sentencepiece", "bytes"}},
    {"tokenizer", nil, "use this tokenizer instead of learning one: a tokenizer.json, a .model file, a folder, or a token file",
     type = "string"},
    {"vocab", nil, "number of pieces to learn (4096)", type = "integer"},
    {"kind", nil, "how to learn the pieces, bpe (the default) or unigram", type = "string"},
    {"sample_bytes", nil, "bytes of the text to learn from, spread over the whole text (3145728)", type = "integer"},
  },
}

local function refuse(...)
  io.stderr:write("tokenize: ", string.format(...), "\nRun it with --help to see the options.\n")
  os.exit(2)
end

-- Refuses missing options, and options that have no meaning together with others.
local function check()
  for _, name in ipairs {"input", "output"} do
    if not options[name] then refuse("option '--%s' is missing", name) end
  end
  if not options.output:match "%.npy$" then refuse("option '--output' must end in .npy, got '%s'", options.output) end
  local reason = options.mode == "bytes" and "--mode bytes" or options.tokenizer and "--tokenizer"
  if not reason then return end
  local unused = {"vocab", "kind", "sample_bytes"}
  if options.mode == "bytes" then unused[#unused + 1] = "tokenizer" end
  for _, name in ipairs(unused) do
    if options[name] then refuse("option '--%s' has no meaning with %s", name:gsub("_", "-"), reason) end
  end
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

-- Returns a callback that prints a progress line at most every 3 s, and one at the end.
local function progress_lines(started)
  local shown = started
  return function(done, total)
    local now = zt.now()
    if now - shown < 3 and done < total then return end
    shown = now
    print(string.format("encoded %3.0f %% (%.1f of %.1f MB, %.1f MB/s)", 100 * done / total, done / 1e6, total / 1e6,
                        done / 1e6 / (now - started)))
  end
end

local function main()
  check()
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

-- Returns an error of the library with the names of this command's options.
local function by_options(message)
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
