--- The records that the scripts of this folder learn from: those of --data, or of the task of sorting.
local zt = require "zt"
local data, rlhf = require "zt.data", require "zt.rlhf"
local on_rank_zero = require "zt.on_rank_zero"
local say = require "parts.say"
local sort = require "parts.sort"

local records = {}

--- Returns the option `phase` of streams: the records of SFT are phase 0, of the reward model 1, of the policy 2.
function records.phase(o, index)
  if not o.phases then return nil end
  local weights = {}
  for place, word in ipairs(o.phases) do weights[place] = tonumber(word) end
  if #weights ~= 3 then error("--phases takes three numbers, such as 2,4,4", 0) end
  return {weights = weights, index = index}
end

-- Returns the path of a .npy file with the records of a .jsonl file.
local function tokenized(o, path, kind, folder)
  if path:find "%.npy$" then return path end
  if not folder then
    error("--data is text, and a tokenizer is needed: give --tokenizer, a folder of Hugging Face or a run, or --model", 0)
  end
  local base = path:match "([^/]*)%.jsonl?$" or path:match "[^/]*$"
  local output = ("%s/data/%s_%s_%s.npy"):format(o.folder, o.name, base, kind) -- each run has files of its own
  zt.mkdir_p(o.folder .. "/data")
  local is_done, made = pcall(data.tokenize_chat, {
    input = path, model = folder, output = output, skip_bad = o.skip_bad,
    on_bad = function(message) zt.log.warn("left out: %s", message) end,
  })
  if not is_done then error((tostring(made):gsub("skip_bad = true", "--skip-bad")), 0) end
  if made.skipped > 0 then say("%d records are used, and %d are left out", made.records, made.skipped) end
  if made.kind ~= kind then error(("'%s' has %s, and this script needs %s"):format(path, made.kind, kind), 0) end
  return output
end

local SORT_RECORDS = 20000

-- Returns the path of the task's file, which is written if it is missing.
local function sort_file(o, name)
  local folder = o.folder .. "/sort"
  local output = ("%s/%s.npy"):format(folder, name)
  sort.write(folder, SORT_RECORDS, 1)
  if not zt.exists(output) then
    data.tokenize_chat{input = ("%s/%s.jsonl"):format(folder, name), model = folder, output = output, plain = true}
  end
  return output
end

--- Returns the path of the token file of these records, "conversations", "preferences" or "prompts".
function records.data(o, mesh, kind)
  local of_sort = {conversations = "sft", preferences = "pairs", prompts = "prompts"}
  return on_rank_zero(mesh:world(), function()
    if o.data then return tokenized(o, o.data, kind, o.tokenizer or o.model) end
    return sort_file(o, of_sort[kind])
  end)
end

-- Returns what the companion of a token file says.
local function companion_of(path) return zt.json.decode(zt.fs.read((path:gsub("%.npy$", ".json")))) end

--- Returns whether a token file has conversations, and not text.
function records.has_conversations(path) return companion_of(path).kind == "conversations" end

--- Returns the tokens that end an answer, as the companion of a token file says.
function records.stop_tokens(path)
  local companion = companion_of(path)
  return companion.stop_tokens and #companion.stop_tokens > 0 and companion.stop_tokens or nil
end

--- Returns n samples at temperature 1 for each of --test unseen prompts of the task of sorting.
function records.unseen(o, mesh, engine, n)
  local path = on_rank_zero(mesh:world(), function() return sort_file(o, "unseen") end)
  local unseen = data.prompts{path = path, batch = o.test, validation = 0, shuffle = false}
  return rlhf.rollout{engine = engine, prompts = unseen:batch(0), n = n, max_tokens = sort.MAX_TOKENS, mesh = mesh, seed = 12345}
end

return records
