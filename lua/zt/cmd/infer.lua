-- ztoolkit infer: measures inference.
--
--   ztoolkit infer bench MODEL   prints the rates of prompts and answers
local command = require "zt.command"
local core = require "zt.core"

local COMMANDS = {"bench"}

local function usage(stream, status)
  stream:write("usage: ztoolkit infer bench MODEL\n",
               "Measures how fast a model reads prompts and makes answers. ztoolkit infer bench --help describes the options.\n")
  os.exit(status)
end

local name = table.remove(arg, 1)
if name == "--help" or name == "-h" then usage(io.stdout, 0) end
if not name then usage(io.stderr, 2) end
if name ~= "bench" then
  io.stderr:write(("infer: unknown command '%s'%s\n"):format(name, core.suggest(name, COMMANDS)))
  os.exit(2)
end
command("infer bench", require "zt.infer.cmd.bench")
