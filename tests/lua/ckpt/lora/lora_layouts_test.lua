-- Tests adapters of trainers whose ranks share matrices (tp) or parameters (ZeRO-3). Runs on one rank and on two.
package.path = "tests/lua/?.lua;" .. package.path
local lu = require "luaunit"
local zt = require "zt"
local ckpt, comm, zero = require "zt.ckpt", require "zt.comm", require "zt.zero"
local adapters = require "infer.adapter_cases"
local cases = require "ckpt.lora.lora_cases"
local temporary = require "support.temporary"

local FOLDER = cases.FOLDER

-- The layouts: options of cases.trainer.
local layouts = {}
local function add(name, mesh, cut, stage)
  layouts[name] = {mesh = mesh, cut = cut,
                   passes = function(program) return program:apply(zero.shard{axis = mesh.dp, stage = stage}) end}
end
local cut, sharded = comm.mesh{dp = 1, tp = -1}, comm.mesh{dp = -1}
add("tp", cut, {tensor = cut.tp}, 3)
add("zero3", sharded, nil, 3)

local world = sharded:world()

local ADAPTERS = {"llama_patterns", "llama_saved", "qwen2_biased", "gpt2_conv1d"}

local TestLayouts = {}

for name, layout in pairs(layouts) do
  TestLayouts["test_loaded_saved_merged_" .. name] = function()
    for _, adapter in ipairs(ADAPTERS) do
      local base = cases.ADAPTERS[adapter]
      local lora = ckpt.lora_options(FOLDER .. adapter, ckpt.pretrained(FOLDER .. base).options)
      local alone = cases.trainer(base, lora, {alone = true})
      local trained = ckpt.load_adapter(alone, FOLDER .. adapter)
      local trainer = cases.trainer(base, lora, cases.with(layout, {unfreeze = trained}))
      lu.assertEquals(ckpt.load_adapter(trainer, FOLDER .. adapter), trained)
      cases.check_equal(alone, trainer)
      lu.assertTrue(cases.distance(cases.logits(alone), cases.logits(trainer)) <= 1e-5, adapter)
      local folder = temporary()
      ckpt.save_adapter(trainer, folder, {base_model = base})
      ckpt.save_adapter(trainer, folder, {base_model = base, overwrite = true})
      local again = cases.trainer(base, lora, layout)
      ckpt.load_adapter(again, folder)
      lu.assertTrue(zt.equal(cases.logits(again), cases.logits(trainer)), adapter)
      local other = cases.trainer(base, lora, {alone = true})
      ckpt.load_adapter(other, folder)
      cases.check_equal(other, alone)
      ckpt.merge_lora(alone)
      ckpt.merge_lora(trainer)
      cases.check_equal(alone, trainer)
    end
  end

  -- What one rank finds out is an error on all of them, and nothing has changed.
  TestLayouts["test_refused_" .. name] = function()
    local trainer = cases.trainer("llama", {rank = 2, alpha = 4, targets = {"out"}}, layout)
    cases.fill(trainer)
    local before, folder = cases.logits(trainer), temporary()
    cases.refused("have adapters of other modules", ckpt.load_adapter, trainer, FOLDER .. "llama_all")
    cases.refused("there is no folder '/none'", ckpt.load_adapter, trainer, "/none")
    ckpt.save_adapter(trainer, folder)
    cases.refused("has an adapter already", ckpt.save_adapter, trainer, folder)
    local other = cases.trainer("llama", {rank = 2, alpha = 4, targets = {"out"}}, layout)
    other:set_parameter("head.norm.weight", zt.ones{32} * 2)
    cases.refused("is an adapter of another base", ckpt.load_adapter, other, folder)
    lu.assertTrue(zt.equal(cases.logits(trainer), before))
  end

  -- Fused adapters of cut matrices.
  TestLayouts["test_fused_" .. name] = function()
    for _, row in ipairs{{"llama", {rank = 3, targets = {"qkv", "up"}}}, {"gpt2", {rank = 2, targets = {"q", "v"}}}} do
      local base, lora = unpack(row)
      local trainer, folder = cases.trainer(base, lora, layout), temporary()
      cases.fill(trainer)
      ckpt.save_adapter(trainer, folder)
      world:barrier()
      local again = cases.trainer(base, lora, layout)
      ckpt.load_adapter(again, folder)
      lu.assertTrue(zt.equal(cases.logits(again), cases.logits(trainer)), base)
      lu.assertNotNil(zt.json.decode(zt.fs.read(folder .. adapters.CONFIG)).r)
    end
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestLayouts", TestLayouts}})
