// Kernels for device meta of the operators for which LibTorch's C++ has none: they run on the CPU, with zeros, to learn the
// shapes of their results. So a layer in Lua can be planned whatever operators it calls.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <torch/library.h>

#include <cstdlib>
#include <new>

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

void run_on_cpu(const c10::OperatorHandle& op, c10::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::vector<IValue> given = torch::jit::pop(*stack, schema.arguments().size());
  c10::Stack on_cpu;
  for (const IValue& argument : given) on_cpu.push_back(to_cpu(argument));
  const std::vector<IValue> arguments = on_cpu;
  op.callBoxed(on_cpu);
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    const int written = written_argument(schema, i);
    if (written < 0) {
      stack->push_back(to_meta(on_cpu[i]));
      continue;
    }
    if (given[written].isTensor()) given[written].toTensor().resize_(arguments[written].toTensor().sizes());
    stack->push_back(given[written]);
  }
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
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.getNamespace() != "aten" || !needs_kernel(*op)) continue;
    library.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  }
  return library;
}();

}  // namespace

}  // namespace zt
