-- Who multiplies matrices, as scripts choose it.
local lu = require "luaunit"
local zt = require "zt"

local DTYPES = {"float32", "float64", "bfloat16", "float16"}

local TestGemm = {}

function TestGemm:tearDown() zt.gemm{provider = "default"} end

function TestGemm:test_the_default_names_a_provider_of_every_dtype()
  local choice = zt.gemm()
  for _, dtype in ipairs(DTYPES) do lu.assertIsString(choice[dtype]) end
  lu.assertEquals(zt.gemm{provider = "default"}, choice)
  lu.assertEquals(choice.float32, "aten")
end

function TestGemm:test_a_provider_is_fixed_by_its_name()
  local choice = zt.gemm{provider = "aten"}
  for _, dtype in ipairs(DTYPES) do lu.assertEquals(choice[dtype], "aten") end
  lu.assertEquals(zt.gemm(), choice)
end

-- Where oneDNN is not installed, or in a program built with a sanitizer, the message says so.
function TestGemm:test_onednn_joins_when_it_is_registered()
  local onednn = require "zt.onednn"
  local ok, path = pcall(onednn.register)
  if not ok then
    lu.assertStrContains(tostring(path), "zt.onednn")
    lu.assertErrorMsgContains("must be one of", zt.gemm, {provider = "onednn"})
    return
  end
  lu.assertStrContains(path, "libdnnl")
  lu.assertEquals(onednn.register(), path)
  local choice = zt.gemm{provider = "onednn"}
  lu.assertEquals({choice.float32, choice.float64}, {"onednn", "aten"})
end

function TestGemm:test_mistakes_are_named()
  lu.assertErrorMsgContains("zt.gemm.provider must be one of 'aten'", zt.gemm, {provider = "atem"})
  lu.assertErrorMsgContains("did you mean 'provider'", zt.gemm, {providers = "aten"})
  lu.assertErrorMsgContains("'cublas'", zt.gemm, {provider = "cublas"})
  lu.assertErrorMsgContains("provider", zt.gemm, {})
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestGemm", TestGemm}})
