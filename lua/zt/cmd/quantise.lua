-- ztoolkit quantise: writes a model with packed matrices, for engines.
--
--   ztoolkit quantise path/to/llama out --format int4 --group 64
--   ztoolkit quantise runs/gpt out --format int8 --data corpus.npy     also prints the loss beside the plain model's
local zt      = require "zt"
local command = require "zt.command"
local fail    = require "zt.fail"

local o = zt.cli {
  name = "quantise", usage = "ztoolkit quantise",
  about = "Writes a folder with a model whose matrices are packed, which `ztoolkit generate` and infer.engine read.",
  options = {
    {"format", "int8", "int8, int4, nf4, or panels: the plain numbers in another order",
     one_of = {"int8", "int4", "nf4", "panels"}},
    {"group", nil, "with int8 and int4: columns that share a scale, 32, 64 or 128; default: 64", type = "integer"},
    {"symmetric", false, "with int4: no minimum per group"},
    {"keep", nil, "a regular expression: parameters whose name contains a match stay plain", type = "string"},
    {"data", nil, "a token file: prints the loss on its validation part, of the plain and of the packed model", type = "string"},
    {"batches", 16, "with --data: batches of 4 samples", at_least = 1},
    {"overwrite", false, "replaces a packed model that is there already"},
  },
  positional = {{"model", "the folder of a run, of a checkpoint, or of a model as Hugging Face writes it"},
                {"to", "the folder to write"}},
}

-- An error for options that say how to make codes which the format does not have.
local function check_format()
  if o.group and o.format == "panels" then
    fail "--group is the number of columns that share a scale, and panels have no scales: leave it out, or give --format int8"
  end
  if o.symmetric and o.format ~= "int4" then
    fail("--symmetric says how int4 makes its codes, and the format is %s: leave it out, or give --format int4", o.format)
  end
end

local function weights_of(opened)
  return {format = o.format, group = o.group, symmetric = o.symmetric or nil, keep = o.keep and {o.keep} or nil,
          dtype = o.format == "panels" and (opened.dtype == "fp32" and "fp32" or "bf16") or nil}
end

-- Prints a line for each format: how many tensors and parameters have it, their bytes, and bits per parameter.
local function print_report(report)
  local order, of, total = {}, {}, {tensors = 0, numel = 0, bytes = 0}
  for _, entry in ipairs(report) do
    if not of[entry.format] then
      of[entry.format] = {tensors = 0, numel = 0, bytes = 0}
      order[#order + 1] = entry.format
    end
    for _, sum in ipairs{of[entry.format], total} do
      sum.tensors, sum.numel, sum.bytes = sum.tensors + 1, sum.numel + entry.numel, sum.bytes + entry.bytes
    end
  end
  local rows = {{"format", "tensors", "parameters", "bytes", "bits per parameter"}}
  local function add(name, sum)
    rows[#rows + 1] = {name, tostring(sum.tensors), zt.text.count(sum.numel), zt.text.bytes(sum.bytes),
                       ("%.2f"):format(8 * sum.bytes / sum.numel)}
  end
  for _, format in ipairs(order) do add(format, of[format]) end
  add("all", total)
  print(zt.text.columns(rows))
end

-- Returns the loss of an opened model on the validation part of a token file.
local function loss_of(opened, text)
  local trainer = require "zt.infer.trainer"(opened, {})
  local sum = 0
  for batch = 0, o.batches - 1 do sum = sum + trainer:evaluate(text:batch(batch)).loss end
  return sum / o.batches
end

command("quantise", function()
  if zt.world.size > 1 then fail "ztoolkit quantise runs on one rank" end
  check_format()
  local model = require "zt.ckpt.pretrained.folder"
  local opened = model.open(o.model)
  if opened.weights then fail("the matrices of '%s' are packed already, as %s", o.model, opened.weights.format) end
  local text = o.data and require("zt.data").tokens{path = o.data, seq = math.min(opened.options.seq or 512, 512), batch = 4,
                                                    split = "validation", shuffle = false}
  print_report(require("zt.infer.packed_folder").write(opened, o.to, weights_of(opened), o.overwrite))
  print("wrote " .. o.to)
  if not text then return end
  local plain, packed = loss_of(opened, text), loss_of(model.open(o.to), text)
  print(("loss %.5f, plain %.5f: %+.5f nats"):format(packed, plain, packed - plain))
end)
