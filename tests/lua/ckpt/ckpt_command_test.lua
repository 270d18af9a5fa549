-- Tests `ztoolkit ckpt`. Also runs on two ranks: then both ranks save, and the commands run in one process.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt = require "zt.ckpt"
local command = require "support.command" "ckpt"
local small = require "support.small_trainer"
local temporary = require "support.temporary"

local IS_FIRST = zt.world.rank == 0
local mesh, trainer_of, trained, batch = small.mesh, small.trainer_of, small.trained, small.batch

local TestCommand = {}

function TestCommand:setUp()
  zt.log.set_level "error"
  self.folder = temporary()
  self.trainer = trained(1, 2)
  ckpt.save(self.folder .. "/a", {trainer = self.trainer}, {step = 1, async = false})
  self.trainer:step(batch(2))
  ckpt.save(self.folder .. "/a", {trainer = self.trainer}, {step = 2, async = false})
  mesh:world():barrier()
end

function TestCommand:test_ls_and_show()
  if not IS_FIRST then return end
  local text, status = command("ls", self.folder)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, self.folder .. "/a/step_00000002")
  lu.assertStrContains(text, "latest")
  text, status = command("show", self.folder .. "/a", "--statistics", "--only", "embedding.weight")
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "optimizer/exp_avg_sq/embedding.weight")
  lu.assertStrContains(text, "[11, 8]")
  text, status = command("show", self.folder .. "/a", "--only", "zebra")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "has 'zebra' in its name: leave out --only to see all names")
  text = command("show", self.folder .. "/a", "--json")
  lu.assertEquals(zt.json.decode(text).values["trainer/step"], 3)
  text, status = command("show", self.folder)
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "there is no checkpoint in")
  text, status = command "lss"
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "did you mean 'ls'?")
  text, status = command "--help"
  lu.assertEquals(status, 0)
  lu.assertStrContains(text, "verify")
end

function TestCommand:test_show_pads_names_only()
  if not IS_FIRST then return end
  local folder = self.folder .. "/wide"
  zt.mkdir_p(folder)
  local import = ckpt.import(folder, 0)
  import:add("model/x", zt.ones(2))
  import:finish{short = {a = 1}, long = {text = ("y"):rep(10000)}}
  local text, status = command("show", folder)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(text, "\nlong   {\"text\":\"yyy")
  lu.assertStrContains(text, "\nshort  {\"a\":1}\n")
  for _, option in ipairs{"--only", "--statistics"} do
    text, status = command("show", folder, "--json", option, option == "--only" and "x" or nil)
    lu.assertEquals(status, 2)
    lu.assertEquals(text, "ckpt show: --json prints all as it is saved: leave out --only and --statistics\n")
  end
end

function TestCommand:test_diff()
  if not IS_FIRST then return end
  local a = self.folder .. "/a/step_0000000"
  local text, status = command("diff", a .. "1", a .. "1")
  lu.assertEquals(status, 0, text)
  local nan = self.folder .. "/nan"
  zt.mkdir_p(nan)
  local import = ckpt.import(nan, 0)
  import:add("x", zt.tensor{0 / 0, 1, 2})
  import:finish{}
  text, status = command("diff", nan, nan)
  lu.assertEquals(status, 0, text)
  import = ckpt.import(nan, 1)
  import:add("x", zt.tensor{0 / 0, 1, 3})
  import:finish{}
  text, status = command("diff", nan .. "/step_00000000", nan)
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "largest difference 1, of 1 in 3 elements")
  text, status = command("diff", a .. "1", self.folder .. "/a")
  lu.assertEquals(status, 1, text)
  local line = text:match "model/embedding.weight[^\n]*"
  lu.assertStrMatches(line, "model/embedding.weight +largest difference .* of %d+ in 88 elements")
  lu.assertStrContains(text, "trainer/step")
end

function TestCommand:test_verify_and_gc()
  if not IS_FIRST then return end
  local shard = self.folder .. "/a/step_00000002/shards/rank_00000.h5"
  local text, status = command("verify", self.folder .. "/a")
  lu.assertEquals(status, 0, text)
  local file = io.open(shard, "r+b")
  file:seek("end", -5)
  file:write "\171"
  file:close()
  text, status = command("verify", self.folder .. "/a")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "rank_00000.h5")
  zt.mkdir_p(self.folder .. "/a/step_00000009.partial-12ab/shards")
  lu.assertStrContains(command("ls", self.folder), "incomplete")
  text, status = command("gc", self.folder .. "/a")
  lu.assertEquals(status, 0)
  lu.assertStrContains(text, "step_00000009.partial-12ab")
  lu.assertFalse(zt.exists(self.folder .. "/a/step_00000009.partial-12ab"))
  text, status = command("gc", self.folder)
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, ("'%s' is no run, but holds runs: give the folder of one of them, such as '%s/a'"):format(
    self.folder, self.folder))
  text, status = command("gc", self.folder .. "/a/step_00000002/shards")
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "is no run: it has neither checkpoints nor metrics.jsonl")
  text, status = command("gc", self.folder .. "/b")
  lu.assertEquals(status, 2)
  lu.assertStrContains(text, "there is nothing of that name")
end

function TestCommand:test_a_file_is_no_folder()
  if not IS_FIRST then return end
  local file, pipe = self.folder .. "/file", self.folder .. "/pipe"
  zt.write_file(file, "")
  os.execute("mkfifo " .. pipe)
  for _, name in ipairs {"ls", "show", "verify", "gc"} do
    for path, what in pairs {[file] = "it is a file", [pipe] = "FIFO", [self.folder .. "/none"] = "nothing of that name"} do
      local text, status = command(name, path)
      lu.assertEquals(status, 2, text)
      lu.assertStrContains(text, what)
      lu.assertEquals(select(2, text:gsub("\n", "")), 1, text)
    end
  end
  lu.assertNotStrContains(command("ls", self.folder .. "/a/"), "//")
end

function TestCommand:test_what_stands_in_the_way_of_a_checkpoint()
  if not IS_FIRST then return end
  local run = self.folder .. "/a"
  zt.write_file(run .. "/latest", ("x"):rep(5000))
  lu.assertEquals(ckpt.latest(run), "step_00000002")
  zt.write_file(run .. "/latest", "nonsense\r\n")
  lu.assertEquals(ckpt.latest(run), "step_00000002")
  local shown = command("verify", run)
  lu.assertStrContains(shown, [[/latest' cannot be used, so the newest complete checkpoint is taken, step_00000002: ]]
    .. [[it holds 'nonsense\x0d\x0a', which is no checkpoint's name]])
  for _, text in ipairs{"step_00000001\r\n", "\239\187\191step_00000001", " \t step_00000001 \n\n", "step_00000001"} do
    zt.write_file(run .. "/latest", text)
    lu.assertEquals(ckpt.latest(run), "step_00000001")
    lu.assertNotStrContains(command("show", run), "cannot be used")
  end
  zt.write_file(run .. "/latest", "step_00000002\n")
  local shard = run .. "/step_00000002/shards/rank_00000.h5"
  os.remove(shard)
  os.execute("mkfifo " .. shard)
  local text, status = command("verify", run)
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "it is a FIFO, not a regular file")
  local master = run .. "/step_00000001/checkpoint.h5"
  os.remove(master)
  os.execute("truncate -s 3G " .. master) -- must be refused by its first bytes: reading the whole file takes 3 GB of memory
  text, status = command("verify", run .. "/step_00000001")
  lu.assertEquals(status, 1, text)
  lu.assertStrContains(text, "does not begin like a checkpoint's master file")
end

function TestCommand:test_export_and_import()
  local to, back, rounded = self.folder .. "/out.safetensors", self.folder .. "/back", self.folder .. "/rounded"
  if IS_FIRST then
    local text, status = command("export", self.folder .. "/a", to)
    lu.assertEquals(status, 0, text)
    text, status = command("export", self.folder .. "/a", to)
    lu.assertEquals(status, 1)
    lu.assertStrContains(text, "is there already")
    text, status = command("export", self.folder .. "/a", to, "--overwrite")
    lu.assertEquals(status, 0, text)
    local many = self.folder .. "/many"
    text, status = command("export", self.folder .. "/a", many, "--dtype", "bf16", "--shard-bytes", "300")
    lu.assertEquals(status, 0, text)
    lu.assertTrue(zt.exists(many .. "/model.safetensors.index.json"))
    text, status = command("import", to, back, "--step", "5")
    lu.assertEquals(status, 0, text)
    lu.assertStrContains(text, "no config.json is beside them: tensors keep their names")
    text, status = command("import", many .. "/model.safetensors.index.json", rounded)
    lu.assertEquals(status, 0, text)
    text, status = command("import", many, rounded)
    lu.assertEquals(status, 1)
    lu.assertStrContains(text, "give a new folder")
  end
  mesh:world():barrier()
  local other = trainer_of(3, 9)
  ckpt.load(back, {model = other})
  for _, name in ipairs(other:parameters()) do lu.assertTrue(other:master(name):equal(self.trainer:master(name)), name) end
  ckpt.load(rounded, {model = other})
  for _, name in ipairs(other:parameters()) do
    lu.assertTrue(other:master(name):equal(self.trainer:master(name):to("bfloat16"):to "float32"), name)
  end
end

function TestCommand:test_import_by_a_map()
  if not IS_FIRST then return end
  local to, map, back = self.folder .. "/out.safetensors", self.folder .. "/map.json", self.folder .. "/mapped"
  command("export", self.folder .. "/a", to)
  zt.write_file(map, zt.json.encode{["^blocks[.]([0-9]+)[.]"] = "layer$1/"})
  local text, status = command("import", to, back, "--map", map)
  lu.assertEquals(status, 0, text)
  lu.assertStrContains(command("show", back), "model/layer0/mlp.up.weight")
  -- Names that cannot be those of one checkpoint: '/' makes a group.
  local announced = {{name = "a", shape = {2}, dtype = "float32"}, {name = "a/b", shape = {2}, dtype = "float32"}}
  local odd = self.folder .. "/odd.safetensors"
  ckpt.write_safetensors(odd, announced, 1e9, function() return zt.ones(2) end)
  local function refused(message, ...)
    local output, ended = command("import", odd, back .. "3", ...)
    lu.assertEquals(ended, 1)
    lu.assertStrContains(output, "ckpt import: '" .. odd .. "' has the tensors 'a' and 'a/b', " .. message)
    lu.assertNotStrContains(output, "traceback")
    lu.assertFalse(zt.exists(back .. "3"))
  end
  refused([[but in a checkpoint '/' makes a group, and 'a' cannot be a group and a tensor: ]]
    .. [[rename one with --map map.json, a JSON file such as {"^a/b$": "a.b"}]])
  zt.write_file(map, zt.json.encode{["/b"] = ""})
  refused("and both would become 'a': change --map so that their names differ", "--map", map)
  zt.write_file(map, zt.json.encode{["^a/b$"] = "a.b"})
  lu.assertEquals(select(2, command("import", odd, back .. "3", "--map", map)), 0)
  zt.write_file(map, zt.json.encode{["^block[.]"] = "layer."})
  text, status = command("import", to, back .. "2", "--map", map)
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, ("--map: '^block[.]' is found in no name of '%s', so it has no effect"):format(to))
  zt.write_file(map, zt.json.encode{["^blocks"] = 5})
  lu.assertStrContains(command("import", to, back .. "2", "--map", map), "got the replacement 5")
  zt.write_file(map, "[")
  text, status = command("import", to, back .. "2", "--map", map)
  lu.assertEquals(status, 1)
  lu.assertStrContains(text, "map.json' is no JSON")
end

-- Mistakes of people have no traceback of Lua; errors in the commands themselves do.
function TestCommand:test_mistakes_have_no_traceback()
  if not IS_FIRST then return end
  for _, words in ipairs{{"export", self.folder .. "/a", self.folder .. "/out", "--model", self.folder .. "/none.json"},
                         {"export", self.folder .. "/a", self.folder .. "/a/latest/out"},
                         {"import", self.folder .. "/none.safetensors", self.folder .. "/b"}} do
    local text, status = command(unpack(words))
    lu.assertEquals(status, 1, text)
    lu.assertStrMatches(text, "ckpt " .. words[1] .. ": [^\n]+\n.*")
    lu.assertNotStrContains(text, "traceback")
    lu.assertNotStrContains(text, ".lua:")
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestCommand", TestCommand}})
