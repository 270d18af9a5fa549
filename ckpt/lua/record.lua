--- Returns the record of a run that a checkpoint keeps for people: script, options, versions, mesh, program.

local core = require "zt.core"
local native = require "zt.ckpt"
local script = require "zt.run.script"
local tokenizer_files = require "zt.ckpt.tokenizer_files"

-- Returns whether a value consists of booleans, numbers, strings and tables: not so with layers that are options.
local function is_plain(value)
  if type(value) ~= "table" then return type(value) ~= "userdata" and type(value) ~= "function" end
  for _, item in pairs(value) do
    if not is_plain(item) then return false end
  end
  return true
end

-- Returns the options from which nn.gpt or moe.gpt made the model, for `ckpt export --huggingface`. nil for other models.
local function options_of(trainer)
  local options = trainer.model.options
  return is_plain(options) and options or nil
end

-- tokenizer: where to take one from if there is no run, or nil.
local function record(run, named, tokenizer)
  local trainer = named.trainer or named.model
  local is_trainer = type(trainer) == "userdata"
  local given = tokenizer and tokenizer_files.record_of(tokenizer, "ckpt.save.tokenizer")
  local of_tokenizer = run and run.tokenizer or given or {}
  return {
    name = run and run.name,
    text = script.text,
    options = run and run.options,
    versions = core.versions(),
    ranks = core.world.size,
    launch = core.world.launch,
    mesh = is_trainer and trainer.mesh and tostring(trainer.mesh):match("mesh (.-) %(") or nil,
    tokenizer = of_tokenizer.tokenizer or tokenizer_files.of_data(named.data),
    token_ids = of_tokenizer.token_ids,
    stop_tokens = of_tokenizer.stop_tokens,
    model = is_trainer and options_of(trainer) or nil,
    program = is_trainer and native.digest(trainer:text()) or nil,
    saved = os.date("!%Y-%m-%dT%H:%M:%SZ"),
  }
end

return record
