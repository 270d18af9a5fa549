#include "stream_options.h"

#include "zt/comm/alike.h"

namespace zt::data {

const Schema<RecordPhase>& schema_of(const RecordPhase& /*phase*/) {
  static const auto kPhase = Schema<RecordPhase>("phase")
                                 .required("weights", &RecordPhase::weights, "the shares of the phases")
                                 .required("index", &RecordPhase::index, "which of them is read, from 0")
                                 .checked(check_phase);
  return kPhase;
}

void check_ranks_alike(const std::string& name, const StreamOptions& options) {
  if (!options.axis) return;
  Facts facts;
  const auto add = [&](const std::string& option, const Value& value) {
    facts.emplace_back(fmt::format("the option '{}' of {}", option, name), text_of(value));
  };
  add("batch", options.batch);
  add("seed", options.seed);
  add("shuffle", options.shuffle);
  for (const auto& [option, value] : options.order) add(option, value);
  check_alike(facts, options.axis->control.get(), "the ranks would not read parts of the same batches");
}

StreamOptions stream_options(const std::string& name, const CommonStreamOptions& options, Value::Table order) {
  StreamOptions all{.batch = options.batch,
                    .rank = options.axis ? options.axis->coordinate : 0,
                    .ranks = options.axis ? options.axis->size : 1,
                    .axis = options.axis,
                    .micro_batches = options.micro_batches,
                    .seed = options.seed,
                    .shuffle = options.shuffle,
                    .order = std::move(order),
                    .takes_other_order = options.allow.has_value()};
  check_ranks_alike(name, all);
  return all;
}

Value::Table order_of(const TokenFile& file, const CommonStreamOptions& options) {
  Value::Table order{{"tokens", file.digest()}, {"split", options.split}, {"validation", options.validation}};
  if (options.phase) order["phase"] = text_of(*options.phase);
  return order;
}

std::vector<int64_t> chosen_of(int64_t records, const CommonStreamOptions& options) {
  return chosen_records(records, options.validation, parse_split(options.split), options.phase);
}

}  // namespace zt::data
