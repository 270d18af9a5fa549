// zt.transfer in C++: lua/zt/transfer.lua finds the adapters to merge.
#include "program/open.h"
#include "zt/base/options.h"
#include "zt/train/trainer.h"
#include "zt/train/transfer.h"

namespace zt {

const Schema<AdapterProduct>& schema_of(const AdapterProduct&) {
  static const auto kSchema = Schema<AdapterProduct>("zt.transfer.merged")
                                  .required("matrix", &AdapterProduct::matrix, "the matrix to which the product is added")
                                  .required("a", &AdapterProduct::a, "the matrix A [rank, columns]")
                                  .required("b", &AdapterProduct::b, "the matrix B [rows, rank]")
                                  .required("first_row", &AdapterProduct::first_row, "of the rows", at_least(0))
                                  .required("scale", &AdapterProduct::scale, "the factor of the product");
  return kSchema;
}

namespace lua {

namespace {

// transfer(from, to, {only = {...}, merged = {...}, sources = {...}, bucket_bytes = n})
int move_values(lua_State* L) {
  static const auto kSchema =
      Schema<TransferOptions>("zt.transfer")
          .optional("only", &TransferOptions::only, "regular expressions: only tensors whose name contains a match of one move")
          .optional("merged", &TransferOptions::merged, "products of adapters, which are added to their matrices")
          .optional("sources", &TransferOptions::sources, "the tensor that another one takes, by the name of that")
          .optional("bucket_bytes", &TransferOptions::bucket_bytes, "most bytes of a rank's buffer", at_least(64));
  const TransferReport report =
      transfer(*check<Trainer>(L, 1), *check<Trainer>(L, 2), kSchema.parse(is_absent(L, 3) ? Value() : check_value(L, 3)));
  push(L, Value(Value::Table{{"parameters", report.parameters},
                             {"sent_bytes", report.sent_bytes},
                             {"local_bytes", report.local_bytes},
                             {"seconds", report.seconds}}));
  return 1;
}

}  // namespace

void open_transfers(Module& module) {
  module.function<move_values>("transfer");
}

}  // namespace lua

}  // namespace zt
