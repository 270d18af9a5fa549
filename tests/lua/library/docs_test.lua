-- Tests the documents: docs/lua.md has exactly the names of the Lua API, and the Lua snippets of all READMEs and documents run,
-- in one process. Runs in the repository's root on one rank.
local lu = require "luaunit"
local zt = require "zt"
local reference = require "zt.help.reference"

local here = arg[0]:match "^(.*)/" or "."
package.path = here .. "/../support/?.lua;" .. package.path
local markdown = require "markdown"
local snippet_world = require "snippet_world"

-- Names that docs/lua.md leaves out, each with the reason.
local LEFT_OUT = {}
-- Snippets that are only compiled, by their first line.
local NOT_RUN = {}
-- Replacements that make the sizes in snippets small, and need no GPU: {pattern, replacement}.
local SMALLER = {
  {'backend = "nccl"', 'backend = "local"'},
  {"text:steps%(%d+%)", "text:steps(2)"},
  {"steps = %d%d+", "steps = 2"},
  {"prompts:steps%(%d+%)", "prompts:steps(2)"},
  {"vocab = 4096", "vocab = 400"},
  {"layers = 4, hidden = 192, heads = 3", "layers = 1, hidden = 32, heads = 2"},
  {"comm%.mesh{dp = 2, tp", "comm.mesh{dp = 1, tp"},
  {"comm%.mesh{pp = 2, dp = 2}", "comm.mesh{pp = 1, dp = 1}"},
  {"comm%.mesh{dp = 2, ep = 2}", "comm.mesh{dp = 1, ep = 1}"},
  {"hidden = 192, ffn = 768", "hidden = 32, ffn = 64"},
}

local function documents()
  local list = io.popen "git ls-files '*.md' 2>/dev/null"
  local paths = {}
  for path in list:lines() do
    if path:match "README%.md$" or path:match "^docs/" then paths[#paths + 1] = path end
  end
  list:close()
  if #paths == 0 then -- no repository: an unpacked archive
    list = io.popen "find . \\( -name build -o -name '.*' -prune \\) -o -name '*.md' -print"
    for path in list:lines() do
      path = path:gsub("^%./", "")
      if path:match "README%.md$" or path:match "^docs/" then paths[#paths + 1] = path end
    end
    list:close()
  end
  table.sort(paths)
  return paths
end

local function listed_names()
  local names = {}
  for line in zt.fs.read "tests/lua/api_surface.txt":gmatch "[^\n]+" do names[line] = true end
  return names
end

local TestReference = {}

-- The test check.api_surface compares tests/lua/api_surface.txt with the API itself.
function TestReference:test_every_name_is_there_and_no_other()
  local listed, seen, problems = listed_names(), {}, {}
  local function complain(...) problems[#problems + 1] = string.format(...) end
  for _, row in ipairs(reference.entries(zt.fs.read "docs/lua.md")) do
    if seen[row.name] then complain("line %d: %s is there twice", row.line, row.name) end
    seen[row.name] = true
    if not listed[row.name] then complain("line %d: there is no %s", row.line, row.name) end
    local code = row.example
    if not code then
      complain("line %d: %s has no example", row.line, row.name)
    elseif not (loadstring("return " .. code) or loadstring(code)) then
      complain("line %d: the example of %s is no Lua: %s", row.line, row.name, code)
    end
  end
  for name in pairs(listed) do
    if not seen[name] and not LEFT_OUT[name] then complain("%s is not described", name) end
  end
  for name in pairs(LEFT_OUT) do
    if not listed[name] then complain("LEFT_OUT names %s, which is not in the API", name) end
  end
  table.sort(problems)
  lu.assertEquals(problems, {})
end

local TestSnippets = {}

local function run_snippet(place, code)
  for _, pair in ipairs(SMALLER) do code = code:gsub(pair[1], pair[2]) end
  local chunk = assert(loadstring(code, "=" .. place))
  return xpcall(setfenv(chunk, snippet_world.environment()), debug.traceback)
end

-- Compiles a snippet and runs it if possible. Adds it to `counts`. Returns the problem or nil.
local function try_snippet(place, block, counts)
  local chunk, message = loadstring(block.text, "=" .. place)
  if not chunk then return ("%s is no Lua: %s"):format(place, message) end
  if markdown.is_fragment(block.text) then
    counts.fragments = counts.fragments + 1
  elseif NOT_RUN[block.text:match "^[^\n]*"] then
    counts.compiled = counts.compiled + 1
  else
    counts.run = counts.run + 1
    local is_done, why = run_snippet(place, block.text)
    if not is_done then return ("%s: %s"):format(place, why) end
  end
  return nil
end

function TestSnippets:test_all_run()
  local paths, counts, problems = documents(), {run = 0, fragments = 0, compiled = 0}, {}
  snippet_world.inside(function(root)
    for _, path in ipairs(paths) do
      for _, block in ipairs(markdown.lua_blocks(zt.fs.read(root .. "/" .. path))) do
        problems[#problems + 1] = try_snippet(path .. ":" .. block.line, block, counts)
        collectgarbage()
      end
    end
  end)
  print(("%d snippets run, %d fragments and %d others compiled only, of %d documents"):format(
    counts.run, counts.fragments, counts.compiled, #paths))
  lu.assertEquals(problems, {})
  lu.assertTrue(counts.run >= 15, "fewer snippets than there were: are they found?")
end

-- The snippets' environment reports undefined names.
function TestSnippets:test_an_undefined_name_is_an_error()
  local is_done, why = run_snippet("here", "print(modle)")
  lu.assertFalse(is_done)
  lu.assertStrContains(why, "reads 'modle'")
  is_done, why = run_snippet("here", "result = 1")
  lu.assertFalse(is_done)
  lu.assertStrContains(why, "sets the global 'result'")
  lu.assertTrue(markdown.is_fragment "f{..., a = 1}")
  lu.assertFalse(markdown.is_fragment 'f() -- and so on ...')
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestReference", TestReference}, {"TestSnippets", TestSnippets}})
