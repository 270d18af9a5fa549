// Rows of sequences, for scripts.
#include <algorithm>

#include "open.h"
#include "rows/sequence_rows.h"
#include "zt/base/options.h"
#include "zt/random/rng.h"
#include "zt/train/trainer.h"

namespace zt::rlhf {

namespace {

struct RowsCall : Sequences, SequenceRowOptions {
  at::Tensor chosen;
  int64_t rows = 0;
};

template <class Call>
Schema<Call> rows_schema(const char* name) {
  return Schema<Call>(name)
      .required("prompts", &Call::prompts, "tokens of all prompts, one prompt after the other")
      .required("prompt_offsets", &Call::prompt_offsets, "where each begins, and the number of all tokens")
      .required("answers", &Call::answers, "tokens of all answers")
      .required("answer_offsets", &Call::answer_offsets, "where each begins, and the number of all tokens")
      .required("chosen", &Call::chosen, "numbers of the sequences, from 0")
      .required("seq", &Call::seq, "positions of a row", at_least(1))
      .optional("padding", &Call::padding, "'packed': several sequences in a row; 'right', 'left': one, padded on that side")
      .optional("ignore_index", &Call::ignore_index, "label of what does not count");
}

std::span<const int64_t> checked(const RowsCall& call) {
  call.check();
  const at::Tensor& chosen = call.chosen;
  if (chosen.dim() != 1 || chosen.scalar_type() != at::kLong || !chosen.is_contiguous() || !chosen.is_cpu())
    misuse("rlhf: the numbers of the chosen sequences must be an int64 vector on the CPU");
  return {chosen.const_data_ptr<int64_t>(), static_cast<size_t>(chosen.numel())};
}

// rlhf.count_rows{prompts =, ..., chosen =, seq =} -> how many rows the sequences need
int count_rows(lua_State* L) {
  static const auto kSchema = rows_schema<RowsCall>("rlhf.count_rows");
  const RowsCall call = kSchema.parse(lua::check_value(L, 1));
  const std::vector<int64_t> rows = rows_of(call, checked(call), call);
  lua::push(L, rows.empty() ? int64_t{0} : std::ranges::max(rows) + 1);
  return 1;
}

// rlhf.make_rows{prompts =, ..., chosen =, seq =, rows =} -> {fields = {tokens =, ...}, label_places =, last_places =}
int make_rows_of(lua_State* L) {
  static const auto kSchema =
      rows_schema<RowsCall>("rlhf.make_rows")
          .required("rows", &RowsCall::rows, "how many to make; the last ones may be padding", at_least(0));
  const RowsCall call = kSchema.parse(lua::check_value(L, 1));
  const SequenceRows made = make_rows(call, checked(call), call.rows, call);
  Value::Table fields;
  for (const auto& [name, field] : made.fields) fields[name] = field;
  lua::push(L, Value(Value::Table{
                   {"fields", std::move(fields)}, {"label_places", made.label_places}, {"last_places", made.last_places}}));
  return 1;
}

// rlhf.share_of(trainer) -> {index =, count =, is_first =}: of so many groups of ranks that have different samples, in which one
// this rank is, and whether it is the first rank of the group; nil for a trainer of one rank
int share_of(lua_State* L) {
  const auto trainer = lua::check<Trainer>(L, 1);
  const auto mesh = trainer->program().mesh();
  if (!mesh || mesh->coord().shape.world_size() == 1) return 0;
  const RankPlace& place = trainer->state().links->place();
  std::vector<std::string> with_samples, others;
  for (const AxisSize& axis : place.coord.shape.axes()) {
    const bool has_other_samples = std::ranges::find(place.sample_axes, axis.name) != place.sample_axes.end();
    (has_other_samples ? with_samples : others).push_back(axis.name);
  }
  lua::push(L, Value(Value::Table{{"index", int64_t{place.coord.index(with_samples)}},
                                  {"count", int64_t{place.coord.size(with_samples)}},
                                  {"is_first", place.coord.index(others) == 0}}));
  return 1;
}

// rlhf.seed_of(seed, iteration, sample) -> a seed of 52 bits, which the three numbers decide
int seed_of(lua_State* L) {
  const auto number = [&](int place) { return static_cast<uint64_t>(lua::check_integer(L, place)); };
  const Philox stream = Philox::keyed(number(1), Purpose::user, number(2), number(3));
  const Philox::Block block = stream.block(0, 0);
  lua::push(L, static_cast<int64_t>((uint64_t{block[0]} << 20) ^ block[1] >> 12));
  return 1;
}

}  // namespace

void open_rows(lua::Module& module) {
  module.function<count_rows>("count_rows").function<make_rows_of>("make_rows").function<share_of>("share_of");
  module.function<seed_of>("seed_of");
}

}  // namespace zt::rlhf
