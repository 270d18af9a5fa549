-- ztoolkit ckpt: inspects, checks and converts checkpoints.
--
--   ztoolkit ckpt ls runs             lists runs, their checkpoints, sizes and losses
--   ztoolkit ckpt show CHECKPOINT     lists tensors and values
--   ztoolkit ckpt diff A B            compares tensor by tensor: equal, or the largest difference
--   ztoolkit ckpt verify CHECKPOINT   reads every byte and compares checksums; status 1 if any is wrong
--   ztoolkit ckpt gc RUN              removes the files of unfinished saves
--   ztoolkit ckpt export | import     converts to and from safetensors
--
-- CHECKPOINT is the folder of a checkpoint, or the folder of a run: then its latest checkpoint.

local COMMANDS = {"ls", "show", "diff", "verify", "gc", "export", "import"}

local core = require "zt.core"
local command = require "zt.command"

local function usage(stream, status)
  stream:write("usage: ztoolkit ckpt ", table.concat(COMMANDS, "|"), " ...\n",
               "Inspects, checks and converts checkpoints. ztoolkit ckpt COMMAND --help describes a command.\n")
  os.exit(status)
end

local name = table.remove(arg, 1)
if name == "--help" or name == "-h" then usage(io.stdout, 0) end
if not name then usage(io.stderr, 2) end
for _, known in ipairs(COMMANDS) do
  if known == name then
    command("ckpt " .. name, require("zt.ckpt.cmd." .. name))
    return
  end
end
io.stderr:write(("ckpt: unknown command '%s'%s\n"):format(name, core.suggest(name, COMMANDS)))
os.exit(2)
