-- Tests unusual configurations of zt.init_inference: keys that belong elsewhere, other spellings and wrong types of values.
local lu = require "luaunit"
local zt = require "zt"
local config = require "zt.deepspeed.inference.config"
local keys = require "zt.deepspeed.inference.keys"

local TestKeys = {}

local function message_of(given) return select(2, pcall(config.read, given, {})) end

-- People give keys of deepspeed.initialize for ZeRO-Inference, and keys without their block.
function TestKeys:test_a_key_from_elsewhere_says_where_it_belongs()
  local count = 0
  for _, entry in ipairs(require("zt.deepspeed.keys").blocks[""].entries) do
    if not keys.blocks[""].by_name[entry.key] then
      lu.assertStrContains(message_of{[entry.key] = {}}, ("unknown key '%s': it is a key of deepspeed.initialize, for training; ")
        :format(entry.key))
      count = count + 1
    end
  end
  lu.assertTrue(count > 50)
  lu.assertStrContains(message_of{zero_optimization = {stage = 3}}, "give it as `zero`, with the same keys: zero = {stage = 3")
  lu.assertStrContains(message_of{train_batch_size = 1}, "an engine answers any number of samples: leave the key out")
  lu.assertStrContains(message_of{fp16 = {enabled = true}}, "give dtype = 'fp16' instead")
  lu.assertStrContains(message_of{hybrid_engine = {}}, "reads the parameters in place")
  lu.assertStrContains(message_of{tp_size = 2}, "give tensor_parallel = {tp_size = ...}")
  lu.assertStrContains(message_of{nvme_path = "/x"}, "give zero = {offload_param = {nvme_path = ...}}")
  lu.assertStrContains(message_of{max_ragged_batch_size = 2}, "give state_manager = {max_ragged_batch_size = ...}")
  lu.assertStrContains(message_of{inference_v2 = {stage = 2}}, "unknown key 'stage': known are")
  lu.assertStrContains(message_of{max_new_tokens = 2}, "it is an argument of engine:generate")
  lu.assertStrContains(message_of{cache = {memory = 1e6}}, "an option; give zt.init_inference{config = ..., cache = ...}")
  lu.assertStrContains(message_of{kernel_injekt = true}, "did you mean 'kernel_inject'?")
  lu.assertStrContains(message_of{zero_optimization = {}, fp16 = {}, dtyp = "fp16"}, "the configuration has 3 mistakes:")
  lu.assertErrorMsgContains("unknown option 'zero_optimization': it is a key of deepspeed.initialize", zt.init_inference,
                            {model = "folder", zero_optimization = {stage = 3}})
end

local TestValues = {}

local function read(given) return config.read(given, {}) end

function TestValues:test_spellings_of_dtype()
  for spelling, dtype in pairs{
    half = "fp16", ["torch.half"] = "fp16", ["torch.float16"] = "fp16", fp16 = "fp16", float16 = "fp16", float = "fp32",
    ["torch.float"] = "fp32", ["torch.float32"] = "fp32", bfloat = "bf16", bfloat16 = "bf16", ["torch.bfloat16"] = "bf16",
  } do
    lu.assertEquals(read{dtype = spelling}.dtype, dtype, spelling)
  end
  for _, spelling in ipairs{"int8", "torch.int8"} do
    lu.assertEquals({read{dtype = spelling}.dtype, read{dtype = spelling}.weights}, {nil, {format = "int8"}})
  end
  for _, wrong in ipairs{"FP16", "fp8", "int4", "torch.qint8", "float16 "} do
    lu.assertStrContains(message_of{dtype = wrong}, "dtype must be 'fp32', 'fp16', 'bf16' or 'int8', got '" .. wrong .. "'")
  end
end

function TestValues:test_wrong_types_say_what_is_right()
  for _, case in ipairs{
    {{mp_size = "2"}, "mp_size must be an integer, got '2'"}, {{mp_size = 2.5}, "mp_size must be an integer, got 2.5"},
    {{tensor_parallel = {tp_size = 0}}, "tensor_parallel.tp_size must be at least 1, got 0"},
    {{tp = 2}, "tp must be a table of options, got 2"}, {{max_tokens = "1024"}, "max_tokens must be an integer, got '1024'"},
    {{max_tokens = 5, max_out_tokens = 5}, "max_tokens is given twice: max_out_tokens is another name of the same key"},
    {{quant = true}, "quant must be a table of options, got true"},
    {{quant = {weight = {num_bits = "8"}}}, "quant.weight.num_bits must be an integer, got '8'"},
    {{quant = {weight = {quantized_initialization = {num_bits = 8, bits = 1}}}}, "unknown option 'bits'"},
    {{quant = {weight = {post_init_quant = {num_bits = 4}}}}, "post_init_quant.num_bits must be a table of options"},
    {{kernel_inject = "true"}, "kernel_inject must be true or false, got 'true'"}, {{moe_experts = 4}, "must be a list, got 4"},
    {{zero = 3}, "zero must be a table of options, got 3"}, {{zero = {stage = "3"}}, "zero.stage must be an integer, got '3'"},
    {{zero = {stage = 3, offload_param = "cpu"}}, "zero.offload_param must be a table of options, got 'cpu'"},
    {{zero = {stage = 3, offload_param = {device = "CPU"}}}, "must be 'none', 'cpu' or 'nvme', got 'CPU'"},
    {{zero = {stage = 3, offload_param = {device = "nvme", nvme_path = ""}}}, "needs a place for the files: give nvme_path"},
  } do
    lu.assertStrContains(message_of(case[1]), case[2])
  end
end

-- Empty blocks, and values that say nothing.
function TestValues:test_what_says_nothing()
  for _, given in ipairs{
    {tensor_parallel = {}}, {quant = {}}, {quant = {weight = {}, activation = {}, qkv = {}}}, {zero = {}}, {moe = false},
    {checkpoint_config = {}}, {injection_policy = {}}, {base_dir = ""}, {dtype = "auto"}, {replace_method = "auto"},
  } do
    local result = read(given)
    result.notes = nil
    lu.assertEquals(result, {advice = {}}, zt.json.encode(given))
  end
end

os.exit(lu.LuaUnit.new():runSuiteByInstances{{"TestKeys", TestKeys}, {"TestValues", TestValues}})
