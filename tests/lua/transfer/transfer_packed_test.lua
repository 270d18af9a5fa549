-- Tests transfers to and from trainers whose matrices are packed. Also runs on two and four ranks.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local layouts = require "transfer.layouts"

local WIDE = {layers = 2, hidden = 128, ffn = 256}
local FORMATS = {
  {format = "int8", group = 32}, {format = "int4", group = 32}, {format = "int4", group = 32, symmetric = true},
  {format = "panels", dtype = "bf16"}, {format = "panels", dtype = "fp32"}, {format = "nf4", nested = false}, {format = "nf4"},
}

local function packed_in(format) return function(model) model:pack(format) end end

local function options_of(seed) return layouts.options(seed, false, WIDE) end

-- Returns the values for which the packed bytes of a matrix stand, by zt.pack and zt.unpack.
local function by_hand(values, format, dtype)
  local of = {rows = values:size(0), columns = values:size(1)}
  for key, value in pairs(format) do of[key] = value end
  return zt.unpack(zt.pack(values, format), of):to(dtype)
end

local function formats_of(trainer)
  local formats = {}
  for _, parameter in ipairs(trainer.model:parameters()) do formats[parameter.name] = parameter.format end
  return formats
end

-- Checks that the packed matrices of `to` are those that packing the whole ones of `from` gives.
local function check(from, to, format, text)
  local formats, count = formats_of(to), 0
  for _, tensor in ipairs(to:tensors()) do
    if (formats[tensor.name] or "plain") ~= "plain" then
      local of = format
      if formats[tensor.name] ~= format.format then of = {format = formats[tensor.name], group = format.group} end
      local wanted = by_hand(from:master(tensor.name), of, tensor.dtype)
      lu.assertTrue(to:parameter(tensor.name):equal(wanted), text .. ": " .. tensor.name)
      count = count + 1
    end
  end
  lu.assertTrue(count > 0)
end

-- Layouts without cut columns where nested scales need whole blocks.
local function layouts_for(format, dice)
  local layout
  repeat layout = layouts.draw(dice, false) until layout.precision ~= "fp64"
    and not (layout.mesh and layout.mesh.tp.size > 1 and format.format == "nf4" and format.nested ~= false)
    and not (format.dtype == "bf16" and layout.precision ~= "bf16")
  layout.trains, layout.moved = false, false
  return layout
end

local TestPacked = {}

function TestPacked:test_packed_targets()
  for place = 1, 3 * #FORMATS do
    local format, dice = FORMATS[(place - 1) % #FORMATS + 1], layouts.dice(100 + place)
    local first, second = layouts.draw(dice, false), layouts_for(format, dice)
    local text = ("%s: from %s to %s"):format(format.format, layouts.text(first), layouts.text(second))
    local from, to = layouts.trainer(options_of(1), first), layouts.trainer(options_of(2), second, packed_in(format))
    layouts.randomise(from, place)
    for _ = 1, 2 do
      zt.transfer(from, to, {bucket_bytes = ({2 ^ 26, 2 ^ 13})[dice(2)]})
      check(from, to, format, text)
      layouts.randomise(from, place + 50)
    end
  end
end

-- The bytes of equal formats move as they are; other formats give the values that they stand for.
function TestPacked:test_packed_sources()
  for place, format in ipairs(FORMATS) do
    local dice = layouts.dice(200 + place)
    local layout = layouts_for(format, dice)
    local from = layouts.trainer(options_of(1), layout, packed_in(format))
    layouts.randomise(from, place)
    layout.stage = layout.mesh and layout.mesh.pp.size == 1 and 3 or layout.stage
    local same = layouts.trainer(options_of(2), layout, packed_in(format))
    zt.transfer(from, same, {bucket_bytes = 2 ^ 12})
    for _, tensor in ipairs(from:tensors()) do
      lu.assertTrue(same:parameter(tensor.name):equal(from:parameter(tensor.name)), format.format .. " " .. tensor.name)
    end
    local second = layouts.draw(dice, false)
    local plain = layouts.trainer(options_of(2), second)
    zt.transfer(from, plain)
    for _, tensor in ipairs(from:tensors()) do
      local got, wanted = plain:parameter(tensor.name), from:parameter(tensor.name)
      lu.assertTrue(got:equal(wanted:to(got:dtype())), ("%s to %s: %s"):format(format.format, layouts.text(second), tensor.name))
    end
  end
end

function TestPacked:test_other_cuts_of_one_format_are_refused()
  local cut
  for _, mesh in ipairs(layouts.meshes) do if mesh.tp.size > 1 and mesh.ep.size == 1 and mesh.pp.size == 1 then cut = mesh end end
  if not cut then return end
  local format = FORMATS[1]
  local from = layouts.trainer(options_of(1), {precision = "bf16", stage = 0, mesh = cut}, packed_in(format))
  local to = layouts.trainer(options_of(1), {precision = "bf16"}, packed_in(format))
  local is_right, message = pcall(zt.transfer, from, to)
  lu.assertFalse(is_right)
  for _, name in ipairs{"blocks.0.attention.qkv.weight", "blocks.1.mlp.down.weight"} do
    lu.assertStrContains(message, ("'%s' is packed as int8 in both, and the ranks of the two have other cuts of it"):format(name))
  end
end

-- What no packed format holds is refused on all ranks after the first move; a complete transfer mends the trainer.
function TestPacked:test_values_that_are_not_finite()
  local from = layouts.trainer(options_of(1), {precision = "fp32", mesh = layouts.meshes[1], stage = 1, trains = true})
  local to = layouts.trainer(options_of(2), {precision = "fp32", mesh = layouts.meshes[1], stage = 0}, packed_in(FORMATS[1]))
  local name = "blocks.1.mlp.down.weight"
  local values = from:parameter(name)
  values[3][2] = 0 / 0
  from:set_parameter(name, values)
  lu.assertErrorMsgContains(name, zt.transfer, from, to)
  lu.assertErrorMsgContains("a transfer to this trainer has failed", to.parameter, to, name)
  lu.assertErrorMsgContains("a transfer to this trainer has failed", zt.transfer, from, to, {only = {"norm"}})
  values[3][2] = 1
  from:set_parameter(name, values)
  zt.transfer(from, to)
  check(from, to, FORMATS[1], "mended")
end

layouts.run{{"TestPacked", TestPacked}}
