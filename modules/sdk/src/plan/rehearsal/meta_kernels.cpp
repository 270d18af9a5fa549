// Kernels for device meta of the operators for which LibTorch's C++ has none: they run on the CPU, with zeros, to learn the
// shapes of their results. So a layer in Lua can be planned whatever operators it calls.
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/result_type.h>
#include <torch/library.h>

#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <sstream>

#include "zt/base/error.h"

namespace zt {

namespace {

using at::Tensor;
using c10::DispatchKey;
using c10::IValue;

// Returns a tensor of zeros on the CPU. Its memory takes no room until something is written: the system maps pages of calloc
// then.
Tensor zeros_like_meta(const Tensor& meta) {
  const at::TensorOptions options = meta.options().device(at::kCPU);
  const size_t bytes = at::detail::computeStorageNbytes(meta.sizes(), meta.strides(), static_cast<size_t>(meta.element_size()));
  if (bytes == 0) return at::empty_strided(meta.sizes(), meta.strides(), options);
  void* zeros = std::calloc(bytes, 1);
  if (!zeros) throw std::bad_alloc();
  return at::from_blob(zeros, meta.sizes(), meta.strides(), std::free, options);
}

IValue to_cpu(const IValue& given) {
  if (given.isTensor())
    return given.toTensor().defined() && given.toTensor().is_meta() ? zeros_like_meta(given.toTensor()) : given;
  if (given.isDevice()) return given.toDevice().is_meta() ? IValue(at::Device(at::kCPU)) : given;
  if (given.isTensorList()) {
    c10::List<Tensor> all;
    for (const Tensor& one : given.toTensorVector()) all.push_back(to_cpu(one).toTensor());
    return all;
  }
  if (!given.isOptionalTensorList()) return given;
  c10::List<std::optional<Tensor>> all;
  for (const std::optional<Tensor>& one : given.toOptionalTensorVector())
    all.push_back(one ? std::optional(to_cpu(*one).toTensor()) : std::nullopt);
  return all;
}

IValue to_meta(const IValue& result) {
  const auto shape_of = [](const Tensor& cpu) {
    return cpu.defined() ? at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options().device(at::kMeta)) : cpu;
  };
  if (result.isTensor()) return shape_of(result.toTensor());
  if (!result.isTensorList()) return result;
  c10::List<Tensor> all;
  for (const Tensor& one : result.toTensorVector()) all.push_back(shape_of(one));
  return all;
}

// Returns the argument that a result is by the operator's schema (that of an operator in place, or its `out`); -1 if it is new.
int written_argument(const c10::FunctionSchema& schema, size_t result) {
  const c10::AliasInfo* written = schema.returns()[result].alias_info();
  for (size_t i = 0; written && written->isWrite() && i < schema.arguments().size(); ++i) {
    const c10::AliasInfo* own = schema.arguments()[i].alias_info();
    if (own && *own == *written) return static_cast<int>(i);
  }
  return -1;
}

// Returns a tensor of the same shape without memory, which must not be read.
Tensor hollow(const Tensor& x) {
  return x.defined() && x.is_cpu() ? at::from_blob(nullptr, x.sizes(), x.strides(), x.options()) : x;
}

IValue hollow(const IValue& value) {
  if (value.isTensor()) return hollow(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<Tensor> all;
  for (const Tensor& one : value.toTensorVector()) all.push_back(hollow(one));
  return all;
}

// The results of an operator, and its arguments after the call. All tensors are hollow: they have a shape and no memory.
struct Outcome {
  std::vector<IValue> results, arguments;
};

// Throws as the operator does.
Outcome run(const c10::OperatorHandle& op, const std::vector<IValue>& given, double value) {
  c10::Stack stack;
  for (const IValue& argument : given) {
    const IValue& on_cpu = stack.emplace_back(to_cpu(argument));
    if (value != 0 && on_cpu.isTensor() && on_cpu.toTensor().defined() && argument.toTensor().is_meta())
      on_cpu.toTensor().fill_(value);
  }
  const std::vector<IValue> arguments = stack;
  op.callBoxed(stack);
  Outcome outcome;
  for (const IValue& result : stack) outcome.results.push_back(hollow(result));
  for (const IValue& argument : arguments) outcome.arguments.push_back(hollow(argument));
  return outcome;
}

// Appends what decides about the shapes of results: an operator's tensors by shape, and its other arguments by value.
void write_key(std::ostream& key, const IValue& argument) {
  const auto write = [&](const Tensor& x) {
    if (x.defined()) key << x.scalar_type() << x.sizes() << x.strides() << x.device();
    key << ';';
  };
  if (argument.isTensor()) return write(argument.toTensor());
  if (argument.isTensorList()) {
    for (const Tensor& one : argument.toTensorVector()) write(one);
  } else if (argument.isOptionalTensorList()) {
    for (const std::optional<Tensor>& one : argument.toOptionalTensorVector()) write(one.value_or(Tensor()));
  } else {
    key << argument;
  }
  key << ';';
}

// Returns the outcome of a call. A plan makes the same calls again and again, so each is run once. Thread-safe.
Outcome outcome_of(const c10::OperatorHandle& op, const std::vector<IValue>& given) {
  static std::mutex mutex;
  static std::map<std::string, Outcome> known;
  std::ostringstream key;
  key << toString(op.operator_name()) << ' ';
  for (const IValue& argument : given) write_key(key, argument);
  const std::lock_guard lock(mutex);
  const auto found = known.find(key.str());
  if (found != known.end()) return found->second;
  Outcome outcome;
  try {
    outcome = run(op, given, 0);
  } catch (const std::exception& error) {
    if (is_out_of_memory(error)) throw;
    const std::exception_ptr first = std::current_exception();
    try {
      outcome = run(op, given, 1);  // zero may be no legal value, as of a divisor
    } catch (const std::exception&) {
      std::rethrow_exception(first);
    }
  }
  return known[key.str()] = outcome;
}

void run_on_cpu(const c10::OperatorHandle& op, c10::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<IValue> given = torch::jit::pop(*stack, schema.arguments().size());
  const Outcome outcome = outcome_of(op, given);
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const int written = written_argument(schema, i);
    if (written < 0) {
      stack->push_back(to_meta(outcome.results[i]));
      continue;
    }
    if (given[written].isTensor()) given[written].toTensor().resize_(outcome.arguments[written].toTensor().sizes());
    stack->push_back(given[written]);
  }
}

// zt.where, also within attention, over scores that may be too many to compute them.
Tensor where_shape(const Tensor& condition, const Tensor& a, const Tensor& b) {
  const auto sizes = at::infer_size(at::infer_size(condition.sizes(), a.sizes()), b.sizes());
  return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(at::result_type(a, b)));
}

// Returns whether an operator runs on the CPU and not on meta, and the shapes of its results depend on those of its arguments
// only.
bool needs_kernel(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::convolution" || name == "aten::convolution_backward")
    return true;  // their kernel for all devices refuses meta
  for (const DispatchKey key : {DispatchKey::Meta, DispatchKey::CompositeExplicitAutograd, DispatchKey::CompositeImplicitAutograd,
                                DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return false;
  }
  for (const at::Tag tag : {at::Tag::data_dependent_output, at::Tag::dynamic_output_shape, at::Tag::nondeterministic_seeded}) {
    if (op.hasTag(tag)) return false;
  }
  return op.hasKernelForDispatchKey(DispatchKey::CPU);
}

// Registers the kernels when the library is loaded, because other threads may not call operators at that time.
const torch::Library kernels = [] {
  torch::Library library(torch::Library::IMPL, "aten", DispatchKey::Meta, __FILE__, __LINE__);
  library.impl("aten::where.self", TORCH_FN(where_shape));
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.getNamespace() != "aten" || !needs_kernel(*op)) continue;
    library.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
  return library;
}();

}  // namespace

}  // namespace zt
