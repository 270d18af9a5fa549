// model:pack, zt.pack and zt.unpack: packed formats of matrices.
#include "program/open.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/gemm/nf4.h"
#include "zt/gemm/packed_stack.h"
#include "zt/model/model.h"
#include "zt/model/precision.h"

namespace zt {

const Schema<Nf4Tensors>& schema_of(const Nf4Tensors&) {
  static const auto kSchema =
      Schema<Nf4Tensors>("zt.import_nf4.parts")
          .required("rows", &Nf4Tensors::rows, "of the matrix", at_least(0))
          .required("weight", &Nf4Tensors::weight, "codes, uint8")
          .required("absmax", &Nf4Tensors::absmax, "scales: uint8, or float32 if they are not nested")
          .required("quant_map", &Nf4Tensors::quant_map, "the numbers of the codes, float32")
          .optional("nested_absmax", &Nf4Tensors::nested_absmax, "scales of the scales, float32")
          .optional("nested_quant_map", &Nf4Tensors::nested_quant_map, "the numbers of nested scales, float32")
          .optional("nested_offset", &Nf4Tensors::nested_offset, "what is added to nested scales");
  return kSchema;
}

namespace lua {

namespace {

struct FormatCall : PackSpec {
  std::string type = "bf16";
};
struct PackCall : FormatCall {
  std::vector<std::string> keep;
};
struct UnpackCall : FormatCall {
  int64_t rows = 0, columns = 0;
  std::optional<int64_t> matrices;
};

template <class T>
Schema<T> format_schema(const std::string& name) {
  return Schema<T>(name)
      .required("format", &T::format, "panels, int8, int4 or nf4")
      .optional("group", &T::group, "consecutive columns that share a scale: 32, 64 or 128")
      .only_with("with codes", [](const T& o) { return o.format != PackFormat::panels; })
      .optional("symmetric", &T::symmetric, "no minimum per group")
      .only_with("with format = \"int4\"", [](const T& o) { return o.format == PackFormat::int4; })
      .optional("nested", &T::nested, "scales are quantised again, 256 together")
      .only_with("with format = \"nf4\"", [](const T& o) { return o.format == PackFormat::nf4; })
      .optional("dtype", &T::type, "of the numbers: bf16 or fp32", one_of({"bf16", "fp32"}))
      .only_with("with format = \"panels\"", [](const T& o) { return o.format == PackFormat::panels; });
}

template <class T>
T parsed(const Schema<T>& schema, const Value& value) {
  T call = schema.parse(value);
  call.dtype = parse_float_type(call.type, schema.name() + ".dtype");
  return call;
}

// model:pack{format = "int4", group = 64, symmetric = false, nested = true, activations = "float", keep = {"head"}}, before a
// program is made -> the names of the parameters that are packed
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

// zt.pack(matrix or stack of matrices, {format = "int4", ...}) -> uint8 [n]
int pack_matrix(lua_State* L) {
  static const auto kSchema = format_schema<FormatCall>("zt.pack");
  const at::Tensor matrix = check_tensor(L, 1).detach().cpu();
  const FormatCall call = parsed(kSchema, check_value(L, 2));
  if (matrix.dim() != 2 && matrix.dim() != 3) misuse("zt.pack takes a matrix or a stack of matrices, got {}", describe(matrix));
  const PackedStack stack{call, matrix.sizes().vec(),
                          large_zeros({packed_bytes(call, matrix.sizes())}, at::TensorOptions(at::kByte))};
  zt::pack(matrix, stack);
  push(L, stack.bytes);
  return 1;
}

// zt.unpack(bytes, {format = "int4", rows =, columns =, [matrices =], ...}) -> float32 [rows, columns] or [matrices, rows,
// columns]
int unpack_matrix(lua_State* L) {
  static const auto kSchema = format_schema<UnpackCall>("zt.unpack")
                                  .required("rows", &UnpackCall::rows, "of the matrix", at_least(0))
                                  .required("columns", &UnpackCall::columns, "of the matrix", at_least(0))
                                  .optional("matrices", &UnpackCall::matrices, "of a stack", at_least(0));
  const at::Tensor bytes = check_tensor(L, 1).detach().cpu().contiguous();
  const UnpackCall call = parsed(kSchema, check_value(L, 2));
  std::vector<int64_t> shape{call.rows, call.columns};
  if (call.matrices) shape.insert(shape.begin(), *call.matrices);
  push(L, zt::unpack(PackedStack{call, shape, bytes}, at::kFloat));
  return 1;
}

struct ImportCall {
  std::vector<Nf4Tensors> parts;
  int64_t columns = 0;
  std::optional<int64_t> matrices;
  std::optional<bool> nested;
};

// Returns the parts that are matrix `index` of those that have `rows` rows each.
std::vector<Nf4Tensors> parts_of(const ImportCall& call, int64_t rows, int64_t index) {
  std::vector<Nf4Tensors> own;
  int64_t first = 0;
  for (const Nf4Tensors& part : call.parts) {
    if (first >= index * rows && first + part.rows <= (index + 1) * rows) own.push_back(part);
    first += part.rows;
  }
  return own;
}

// zt.import_nf4{parts = {{rows =, weight =, absmax =, quant_map =, nested_absmax =, ...}, ...}, columns =, [matrices =],
// [nested =]} -> uint8 [n]
int import_nf4_matrix(lua_State* L) {
  static const auto kSchema = Schema<ImportCall>("zt.import_nf4")
                                  .required("parts", &ImportCall::parts, "matrices that bitsandbytes has quantised, to be joined")
                                  .required("columns", &ImportCall::columns, "of the matrices", at_least(1))
                                  .optional("matrices", &ImportCall::matrices, "of a stack", at_least(1))
                                  .optional("nested", &ImportCall::nested, "of the result; default: as the parts");
  const ImportCall call = kSchema.parse(check_value(L, 1));
  if (call.parts.empty()) misuse("zt.import_nf4.parts is empty: give the matrices to join");
  int64_t rows = 0;
  for (const Nf4Tensors& part : call.parts) rows += part.rows;
  const int64_t matrices = call.matrices.value_or(1);
  if (rows % matrices != 0)
    misuse("zt.import_nf4: the parts have {} rows, which are not {} matrices of one size", rows, matrices);
  std::vector<int64_t> shape{rows / matrices, call.columns};
  if (call.matrices) shape.insert(shape.begin(), matrices);
  PackSpec spec{.format = PackFormat::nf4};
  spec.nested = call.nested.value_or(call.parts[0].nested_absmax.defined());
  const PackedStack stack{spec, shape, large_zeros({packed_bytes(spec, shape)}, at::TensorOptions(at::kByte))};
  for (int64_t i = 0; i < matrices; ++i) import_nf4(parts_of(call, rows / matrices, i), stack.matrix(i));
  push(L, stack.bytes);
  return 1;
}

// zt.can_join_nf4({rows, ...}, columns, nested) -> whether zt.import_nf4 can
int can_join(lua_State* L) {
  std::vector<int64_t> rows;
  convert(check_value(L, 1), "zt.can_join_nf4: rows", rows);
  push(L, can_join_nf4(rows, check_integer(L, 2), check_boolean(L, 3)));
  return 1;
}

}  // namespace

void open_packing(Module& module) {
  module.function<pack_matrix>("pack").function<unpack_matrix>("unpack");
  module.function<import_nf4_matrix>("import_nf4").function<can_join>("can_join_nf4");
  module.type<Model>().method<pack_model>("pack");
}

}  // namespace lua
}  // namespace zt
