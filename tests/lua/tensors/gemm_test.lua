-- Tests how scripts choose the GEMM provider.
local lu = require "luaunit"
local zt = require "zt"
local comm, nn, optim, zero = require "zt.comm", require "zt.nn", require "zt.optim", require "zt.zero"

local DTYPES = {"float32", "float64", "bfloat16", "float16"}

local TestGemm = {}

function TestGemm:tearDown() zt.gemm{provider = "default"} end

function TestGemm:test_the_default_names_a_provider_of_every_dtype()
  local choice = zt.gemm()
  for _, dtype in ipairs(DTYPES) do lu.assertIsString(choice[dtype]) end
  lu.assertEquals(zt.gemm{provider = "default"}, choice)
  lu.assertTrue(choice.float32 == "aten" or choice.float32 == "blis")
end

function TestGemm:test_a_provider_is_fixed_by_its_name()
  local choice = zt.gemm{provider = "aten"}
  for _, dtype in ipairs(DTYPES) do lu.assertEquals(choice[dtype], "aten") end
  lu.assertEquals(zt.gemm(), choice)
end

function TestGemm:test_skinny_is_offered()
  lu.assertEquals(zt.gemm{provider = "skinny"}.float32, "skinny")
end

-- On two ranks: making a trainer fails on all ranks if they use different providers.
function TestGemm:test_the_ranks_of_a_trainer_multiply_alike()
  local rank, ranks = zt.world.rank, zt.world.size
  local function make()
    local mesh = comm.mesh{dp = -1}
    local model = nn.gpt{layers = 1, hidden = 8, heads = 2, vocab = 11, seq = 4, seed = 3}
    return zt.trainer(zt.program(model):apply(zero.shard{stage = 1, axis = mesh.dp}), {optimizer = optim.adamw{lr = 1e-2}})
  end
  zt.gemm{provider = rank == 0 and "aten" or "skinny"}
  if ranks == 1 then
    make()
  else
    local ok, message = pcall(make)
    lu.assertFalse(ok)
    lu.assertStrContains(tostring(message), "float32: 'aten' on rank 0, 'skinny' on rank 1")
  end
  zt.gemm{provider = "aten"}
  make()
end

function TestGemm:test_mistakes_are_named()
  lu.assertErrorMsgContains("zt.gemm.provider must be one of 'aten'", zt.gemm, {provider = "atem"})
  lu.assertErrorMsgContains("must be one of", zt.gemm, {provider = "auto"})
  lu.assertErrorMsgContains("did you mean 'provider'", zt.gemm, {providers = "aten"})
  lu.assertErrorMsgContains("'cublas'", zt.gemm, {provider = "cublas"})
  lu.assertErrorMsgContains("provider", zt.gemm, {})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGemm", TestGemm}})
