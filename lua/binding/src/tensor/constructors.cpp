#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>

#include "arguments.h"
#include "binding_state.h"
#include "cdata.h"
#include "ops/call.h"
#include "ops/convert.h"
#include "ops/random.h"
#include "tensor/functions.h"
#include "tensor/table.h"
#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/random/rng.h"

namespace zt::lua {

namespace {

struct TensorOptions {
  std::optional<std::string> dtype;
  std::string device = "cpu";
  bool requires_grad = false;
};

const auto kTensor = Schema<TensorOptions>("zt.tensor")
                         .optional("dtype", &TensorOptions::dtype, "dtype of the elements; by default it follows from the values")
                         .optional("device", &TensorOptions::device, "device of the tensor")
                         .optional("requires_grad", &TensorOptions::requires_grad, "whether autograd records operations on it");

struct SeededOptions {
  int64_t seed = 0;
  std::optional<std::string> dtype;
  std::string device = "cpu";
  bool requires_grad = false;
};

const auto kSeeded = Schema<SeededOptions>("zt.rand")
                         .required("seed", &SeededOptions::seed, "key of the counter-based numbers")
                         .optional("dtype", &SeededOptions::dtype, "a floating dtype, by default the default dtype")
                         .optional("device", &SeededOptions::device, "device of the tensor")
                         .optional("requires_grad", &SeededOptions::requires_grad, "whether autograd records operations on it");

// zt.tensor({{1, 2}, {3, 4}}, {dtype = "float64", requires_grad = true})
int new_tensor(lua_State* L) {
  if (is_absent(L, 1) || is_tensor(L, 1)) wrong_argument(L, 1, "a number, a boolean or a nested table");
  const TensorOptions options = kTensor.parse(check_value(L, 2));
  const auto dtype = options.dtype ? std::optional(parse_dtype(*options.dtype)) : std::nullopt;
  push(L, tensor_from_table(L, 1, dtype).to(usable_device(options.device)).set_requires_grad(options.requires_grad));
  return 1;
}

std::vector<int64_t> check_sizes(lua_State* L, int index) {
  std::vector<int64_t> sizes;
  convert(check_value(L, index), argument_name(L, index), sizes);
  for (const int64_t size : sizes) {
    if (size < 0) misuse("{}: the sizes of a tensor are at least 0, got {}", argument_name(L, index), size);
  }
  return sizes;
}

enum class Distribution { uniform, normal };

// Returns elements of the Philox stream (seed, user), element i from stream index i. They are the same on every machine and rank.
at::Tensor seeded(Distribution distribution, const std::vector<int64_t>& sizes, int64_t seed) {
  const Philox stream = Philox::keyed(static_cast<uint64_t>(seed), Purpose::user);
  at::Tensor tensor = at::empty(sizes, distribution == Distribution::uniform ? at::kFloat : at::kDouble);
  const auto count = static_cast<size_t>(tensor.numel());
  if (distribution == Distribution::uniform) {
    stream.uniform(0, 0, {tensor.data_ptr<float>(), count});
  } else {
    stream.normal(0, 0, {tensor.data_ptr<double>(), count});
  }
  return tensor;
}

bool has_seed(lua_State* L) {
  if (!lua_istable(L, 2)) return false;
  lua_getfield(L, 2, "seed");
  const bool found = !lua_isnil(L, -1);
  lua_pop(L, 1);
  return found;
}

// With {seed = n}, the numbers are from Philox; without, from ATen's operator and the state's own generator.
int random_tensor(lua_State* L, Distribution distribution, const char* op) {
  if (has_seed(L)) {
    const SeededOptions options = kSeeded.parse(check_value(L, 2));
    const auto dtype = options.dtype ? parse_dtype(*options.dtype) : binding_state(L).default_dtype;
    if (!at::isFloatingType(dtype)) misuse("zt.{}: dtype '{}' is not floating", op, *options.dtype);
    const at::Tensor made = seeded(distribution, check_sizes(L, 1), options.seed);
    push(L, made.to(usable_device(options.device), dtype).set_requires_grad(options.requires_grad));
    return 1;
  }
  push_operator(L, op, CallStyle::function);
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

int rand(lua_State* L) {
  return random_tensor(L, Distribution::uniform, "rand");
}
int randn(lua_State* L) {
  return random_tensor(L, Distribution::normal, "randn");
}

int floating(lua_State* L) {
  push(L, std::make_shared<Floating>(Floating{check_number(L, 1)}));
  return 1;
}

int floating_text(lua_State* L) {
  push(L, fmt::format("{:#}", check<Floating>(L, 1)->value));
  return 1;
}

int new_generator(lua_State* L) {
  push(L, std::make_shared<Generator>(
              Generator{at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(check_integer(L, 1)))}));
  return 1;
}

int manual_seed(lua_State* L) {
  BindingState& state = binding_state(L);
  state.generator = at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(check_integer(L, 1)));
  return 0;
}

// random_state() -> the state of the Lua state's own generator, as hexadecimal digits
int random_state(lua_State* L) {
  const at::Tensor state = own_generator(L).get_state();
  const std::span bytes(state.const_data_ptr<uint8_t>(), static_cast<size_t>(state.numel()));
  push(L, fmt::format("{:02x}", fmt::join(bytes, "")));
  return 1;
}

int set_random_state(lua_State* L) {
  const std::string digits = check_string(L, 1);
  at::Generator& generator = own_generator(L);
  at::Tensor state = generator.get_state().clone();
  const bool fits = digits.size() == 2 * static_cast<size_t>(state.numel()) &&
                    digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!fits) misuse("set_random_state takes a string that random_state has returned: {} hexadecimal digits", 2 * state.numel());
  for (int64_t i = 0; i < state.numel(); ++i)
    state.mutable_data_ptr<uint8_t>()[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  generator.set_state(state);
  return 0;
}

int get_default_dtype(lua_State* L) {
  push(L, dtype_name(binding_state(L).default_dtype));
  return 1;
}

int set_default_dtype(lua_State* L) {
  const at::ScalarType dtype = parse_dtype(check_string(L, 1));
  if (!at::isFloatingType(dtype)) misuse("the default dtype is a floating one, got '{}'", dtype_name(dtype));
  binding_state(L).default_dtype = dtype;
  return 0;
}

}  // namespace

void open_constructors(Module& module) {
  module.type<Floating>().metamethod<floating_text>("__tostring");
  module.function<new_tensor>("tensor")
      .function<rand>("rand")
      .function<randn>("randn")
      .function<floating>("float")
      .function<new_generator>("generator")
      .function<manual_seed>("manual_seed")
      .function<random_state>("random_state")
      .function<set_random_state>("set_random_state")
      .function<get_default_dtype>("default_dtype")
      .function<set_default_dtype>("set_default_dtype");
}

}  // namespace zt::lua
