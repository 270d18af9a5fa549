// model:pack, zt.pack and zt.unpack: packed formats of matrices.
#include "program/open.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/model/model.h"
#include "zt/model/precision.h"

namespace zt::lua {

namespace {

struct FormatCall : PackSpec {
  std::string type = "bf16";
};
struct PackCall : FormatCall {
  std::vector<std::string> keep;
};
struct UnpackCall : FormatCall {
  int64_t rows = 0, columns = 0;
};

template <class T>
Schema<T> format_schema(const std::string& name) {
  return Schema<T>(name)
      .required("format", &T::format, "panels, int8, int4 or nf4")
      .optional("group", &T::group, "consecutive columns that share a scale: 32, 64 or 128")
      .only_with("with codes", [](const T& o) { return o.format != PackFormat::panels; })
      .optional("symmetric", &T::symmetric, "no minimum per group")
      .only_with("with format = \"int4\"", [](const T& o) { return o.format == PackFormat::int4; })
      .optional("dtype", &T::type, "of the numbers: bf16 or fp32", one_of({"bf16", "fp32"}))
      .only_with("with format = \"panels\"", [](const T& o) { return o.format == PackFormat::panels; });
}

template <class T>
T parsed(const Schema<T>& schema, const Value& value) {
  T call = schema.parse(value);
  call.dtype = parse_float_type(call.type, schema.name() + ".dtype");
  return call;
}

// model:pack{format = "int4", group = 64, symmetric = false, activations = "float", keep = {"head"}}, before a program is made ->
// the names of the parameters that are packed
int pack_model(lua_State* L) {
  static const auto kSchema =
      format_schema<PackCall>("model:pack")
          .optional("activations", &PackCall::activations, "float, or int8: rounded to 8 bits per group before a GEMM")
          .optional("keep", &PackCall::keep, "regular expressions: parameters whose name contains a match of one stay plain");
  const auto model = check<Model>(L, 1);
  const PackCall call = parsed(kSchema, check_value(L, 2));
  const std::vector<std::string> names = model->pack(call, call.keep);
  push(L, Value(Value::List(names.begin(), names.end())));
  return 1;
}

// zt.pack(matrix, {format = "int4", ...}) -> uint8 [n]
int pack_matrix(lua_State* L) {
  static const auto kSchema = format_schema<FormatCall>("zt.pack");
  const at::Tensor matrix = check_tensor(L, 1).detach().cpu();
  const FormatCall call = parsed(kSchema, check_value(L, 2));
  if (matrix.dim() != 2) misuse("zt.pack takes a matrix, got {}", describe(matrix));
  const at::Tensor bytes = large_zeros({packed_bytes(call, matrix.size(0), matrix.size(1))}, at::TensorOptions(at::kByte));
  zt::pack(matrix, {call, matrix.size(0), matrix.size(1), bytes});
  push(L, bytes);
  return 1;
}

// zt.unpack(bytes, {format = "int4", rows =, columns =, ...}) -> float32 [rows, columns]
int unpack_matrix(lua_State* L) {
  static const auto kSchema = format_schema<UnpackCall>("zt.unpack")
                                  .required("rows", &UnpackCall::rows, "of the matrix", at_least(0))
                                  .required("columns", &UnpackCall::columns, "of the matrix", at_least(0));
  const at::Tensor bytes = check_tensor(L, 1).detach().cpu().contiguous();
  const UnpackCall call = parsed(kSchema, check_value(L, 2));
  push(L, zt::unpack({call, call.rows, call.columns, bytes}, at::kFloat));
  return 1;
}

}  // namespace

void open_packing(Module& module) {
  module.function<pack_matrix>("pack").function<unpack_matrix>("unpack");
  module.type<Model>().method<pack_model>("pack");
}

}  // namespace zt::lua
