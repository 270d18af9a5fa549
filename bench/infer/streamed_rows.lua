-- Prints how fast an engine answers whose layers are read from files for each step, beside one whose layers stay in memory.
--
--   ztoolkit run bench/infer/streamed_rows.lua FOLDER         FOLDER: on the disk to measure
--
-- With few answers the reads take longer than the layers, and their rate counts, beside what `ztoolkit io bench FOLDER` or fio
-- reads. With many rows per step the layers take longer, and hide the reads.
local zt = require "zt"
local infer, nn = require "zt.infer", require "zt.nn"

local o = zt.cli{
  name = "streamed_rows", about = "Measures engines whose layers are read from files.",
  options = {
    {"layers", 16, "of a model of Llama's kind of 0.98 B parameters with 16", at_least = 1},
    {"rows", {1, 64, 256, 1024}, "of a step: a prompt of so many tokens"},
    {"steps", 4, "that count, after one that does not", at_least = 1},
    {"depth", 0, "operations under way at once; 0: as many as staging needs", at_least = 0},
  },
  positional = {{"folder", "on the disk to measure"}},
}

local shape = {family = "llama", layers = o.layers, hidden = 2048, ffn = 5632, heads = 32, kv_heads = 8, vocab = 32000,
               seq = 4096}
local trainer = zt.trainer(zt.program(nn.gpt(shape), {precision = "bf16"}), {separate = true})

local function engine_of(more)
  local options = {trainer = trainer, token_budget = 1024, max_sequences = 16, max_context = 2048,
                   cache = {prefix = false, memory = 1e9}}
  for key, value in pairs(more) do options[key] = value end
  return infer.engine(options)
end

-- Returns the seconds of a step that computes so many rows.
local function step_of(engine, rows)
  local best
  for seed = 0, o.steps do
    local prompt = zt.randint(shape.vocab, {rows}, {generator = zt.generator(seed + 10 * rows)})
    local before = engine:stats()
    engine:generate{prompt = prompt, max_tokens = 1}
    local seconds = engine:stats().seconds - before.seconds
    if seed > 0 then best = math.min(best or seconds, seconds) end
  end
  return best
end

local inside = engine_of{dtype = "bf16"}
local offload = {parameters = "nvme", folder = o.folder, depth = o.depth > 0 and o.depth or nil}
local streamed = engine_of{offload = offload}
local bytes = streamed.trainer:memory().files.measured -- a step reads all of them
local rows = {{"rows", "in memory: ms", "streamed: ms", "rate over that in memory", "read: GB/s"}}
for _, count in ipairs(o.rows) do
  local in_memory, from_files = step_of(inside, count), step_of(streamed, count)
  rows[#rows + 1] = {tostring(count), ("%.1f"):format(in_memory * 1e3), ("%.1f"):format(from_files * 1e3),
                     ("%.2f"):format(in_memory / from_files), ("%.2f"):format(bytes / from_files / 1e9)}
end
print(("parameters of %s in files, %d threads"):format(zt.text.bytes(bytes), zt.num_threads()))
print(zt.text.columns(rows))
