// The options that streams have in common.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phase.h"
#include "steps.h"
#include "zt/base/options.h"
#include "zt/comm/mesh.h"

namespace zt::data {

// The value of the option `allow` of streams and of restore: a state with another order of samples is taken, too.
constexpr const char* kOtherOrder = "other_order";

struct CommonStreamOptions {
  std::string path;
  int64_t batch = 0;
  std::shared_ptr<Axis> axis;
  int64_t seed = 0;
  std::string split = "train";
  double validation = 0.05;
  bool shuffle = true;
  std::optional<std::string> allow;
  int64_t micro_batches = 1;
  std::optional<RecordPhase> phase;
};

const Schema<RecordPhase>& schema_of(const RecordPhase& phase);

template <class T>
Schema<T> common_schema(const char* name) {
  return Schema<T>(name)
      .required("path", &T::path, "the token file, made by ztoolkit tokenize")
      .required("batch", &T::batch, "samples per global batch, over all ranks", at_least(1))
      .optional("axis", &T::axis, "mesh axis whose ranks share the batch; default: none, this rank reads all of it")
      .optional("seed", &T::seed, "seed of the order of samples")
      .only_with("with shuffle = true", [](const T& o) { return o.shuffle; })
      .optional("split", &T::split, "'train' or 'validation'", one_of({"train", "validation"}))
      .optional("validation", &T::validation, "fraction of the data, at the end of the file, kept for validation", between(0, 1))
      .optional("shuffle", &T::shuffle, "give each epoch an order of its own")
      .optional("allow", &T::allow, "'other_order': a checkpoint of a stream with another order is loaded, too",
                one_of({kOtherOrder}));
}

// Adds the options of streams with rows of tokens.
template <class T>
Schema<T> with_rows(Schema<T> schema) {
  return std::move(schema)
      .required("seq", &T::seq, "tokens per sample", at_least(1))
      .optional("micro_batches", &T::micro_batches, "micro-batches that each rank's samples must divide into", at_least(1));
}

// Adds the option of streams over records.
template <class T>
Schema<T> with_phase(Schema<T> schema) {
  return std::move(schema).optional("phase", &T::phase, "{weights =, index =}: reads one of several parts of the records");
}

// Throws Misuse on all ranks of the axis unless they read parts of the same batches.
void check_ranks_alike(const std::string& name, const StreamOptions& options);

// Returns the indices of the records of the split and the phase.
std::vector<int64_t> chosen_of(int64_t records, const CommonStreamOptions& options);

// Returns the options of a stream over the ranks of `axis`. `order`: what decides the samples besides seed and shuffle. Throws
// Misuse on all ranks unless all have the same.
StreamOptions stream_options(const std::string& name, const CommonStreamOptions& options, Value::Table order);

// Returns the part of the order that all streams over a file have. A file is known by its content, because files are moved.
Value::Table order_of(const TokenFile& file, const CommonStreamOptions& options);

}  // namespace zt::data
