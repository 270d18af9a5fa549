-- ztoolkit ckpt export --adapter: writes the adapters of a checkpoint's model as PEFT's files.

local fail = require "zt.fail"
local json_file = require "zt.ckpt.cmd.json_file"
local moe = require "zt.moe"
local names = require "zt.ckpt.names"
local source_of = require "zt.ckpt.adapters.source"
local text = require "zt.text"
local write_adapter = require "zt.ckpt.adapters.write_adapter"

-- An error if an option is given that has no effect.
local function check_options(o)
  for option, usual in pairs{merge = false, huggingface = false, dtype = "saved"} do
    if o[option] ~= usual then
      fail("--adapter writes no weights, so --%s has no effect: leave one of them out", option)
    end
  end
end

-- An error unless the options are those of the checkpoint's model.
local function check_model(source)
  local shapes = {}
  for _, tensor in ipairs(source.tensors) do shapes[tensor.name] = tensor.shape end
  local lines = names.complaints(moe.gpt(source.options):parameters(), shapes, {"not in the checkpoint", "not in the model"},
    function() return false end)
  if #lines > 0 then
    fail("the options of the model of %s are not those of the checkpoint's model:\n%s", source.place, table.concat(lines, "\n"))
  end
end

--- o: the options of the command. script: the checkpoint's record.
return function(o, checkpoint, script)
  check_options(o)
  local options = o.model and json_file(o.model) or script.model
  if not options then
    fail("'%s' does not record its model's options, by which the modules of adapters are known: give them by --model model.json",
      o.checkpoint)
  end
  if not options.lora then
    fail("'%s' has no adapters by the options of its model (lora): leave --adapter out to write its weights", o.checkpoint)
  end
  local source = source_of.of_checkpoint(checkpoint, options, script, o.checkpoint)
  check_model(source)
  local count = write_adapter(source, o.to, {base_model = o.base_model, overwrite = o.overwrite,
                                             hash = next(source.formats) == nil}) -- a packed base is not in the checkpoint
  print(("wrote %s: %s tensors"):format(o.to, text.count(count)))
end
