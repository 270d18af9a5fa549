-- Writes a text for small experiments: sentences of a made-up language. Every call writes the same text.
--   luajit tests/experiments/make_text.lua OUTPUT BYTES
local output, bytes = arg[1], tonumber(arg[2])
local words = {
  noun = {"cat", "house", "river", "song", "ship", "letter", "garden", "stone"},
  verb = {"sees", "finds", "keeps", "loses", "paints"},
  adjective = {"old", "small", "green", "quiet"},
}
local state = 1
local function pick(list)
  state = (state * 1103515245 + 12345) % 2 ^ 31 -- the C standard's example generator; its high bits are good enough
  return list[math.floor(state / 2 ^ 16) % #list + 1]
end

local parts, size = {}, 0
while size < bytes do
  local sentence = ("The %s %s %s the %s.\n"):format(pick(words.adjective), pick(words.noun), pick(words.verb), pick(words.noun))
  parts[#parts + 1], size = sentence, size + #sentence
end
local file = assert(io.open(output, "wb"))
assert(file:write(table.concat(parts)))
assert(file:close())
