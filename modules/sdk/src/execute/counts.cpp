#include "counts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>

#include "execute/step/micro_batches.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/process/log.h"

namespace zt {

SamplesHash hash_of(const std::vector<Batch>& micro_batches) {
  SamplesHash hash;
  const auto add = [](uint64_t& to, const void* data, size_t bytes) { to = XXH3_64bits_withSeed(data, bytes, to); };
  for (const Batch& batch : micro_batches) {
    for (const auto& [name, field] : batch) {
      const at::Tensor host = field.cpu().contiguous();
      add(hash.names, name.data(), name.size());
      add(hash.values, name.data(), name.size());
      add(hash.values, host.const_data_ptr(), host.nbytes());
    }
  }
  return hash;
}

uint64_t hash_of_shapes(const std::vector<Batch>& micro_batches) {
  std::string text;
  for (const Batch& batch : micro_batches) {
    for (const auto& [name, field] : batch) text += fmt::format("{} [{}]\n", name, fmt::join(field.sizes(), ", "));
  }
  return stable_hash(text);
}

bool share_samples(const RankPlace& place, const std::vector<std::string>& axes) {
  return std::ranges::any_of(axes, [&](const std::string& axis) {
    return place.coord.size({axis}) > 1 && std::ranges::find(place.sample_axes, axis) == place.sample_axes.end();
  });
}

Contribution contribution_of(const StepState& state, const std::vector<std::string>& axes, const MicroBatches& batches,
                             Mode mode) {
  const RankPlace& place = state.links->place();
  std::vector<std::string> of_place = place.sample_axes;
  std::ranges::copy_if(place.split_axes, std::back_inserter(of_place), [&](const std::string& axis) {
    return std::ranges::find(place.sample_axes, axis) == place.sample_axes.end();
  });
  Contribution mine{.is_counted = place.is_first_of_samples(axes),
                    .group = place.coord.index(place.sample_axes),
                    .place = place.coord.index(of_place),
                    .trainer = state.links->trainer(),
                    .failure = state.failure};
  if (mode == Mode::train) mine.lr = state.scalars.lr;
  const bool is_first_step = mode == Mode::train && state.step == 0;
  if ((share_samples(place, axes) || is_first_step) && !state.failure) mine.samples = hash_of(batches.all());
  return mine;
}

std::string share_failure(Communicator& control, const std::optional<StepFailure>& mine) {
  Value told;
  if (mine) {  // a message may quote bytes that are not UTF-8
    const std::string quoted = nlohmann::json(mine->text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    told = Value::Table{{"text", nlohmann::json::parse(quoted).get<std::string>()}, {"is_of_peer", mine->is_of_peer}};
  }
  const std::vector<Value> all = control.all_gather_values(told, "shares a failure of the step");
  std::string first;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto* failure = all[rank].get_if<Value::Table>();
    if (!failure) continue;
    const bool is_of_peer = *failure->at("is_of_peer").get_if<bool>();
    if (is_of_peer && !first.empty()) continue;
    first = fmt::format("rank {} of '{}' failed: {}", rank, control.name(), *failure->at("text").get_if<std::string>());
    if (!is_of_peer) break;
  }
  return first;
}

namespace {

// The words of a message about counts, in this order.
enum CountWord : uint8_t {
  tokens,
  samples,
  rows,
  running,
  at_step,
  of_trainer,
  is_counted,
  group,
  place,
  field_names,
  field_values,
  field_shapes,
  rate,
  divisor,
  has_failed,
  words
};

// Throws PeerFailed, with the failure, on all ranks of `comm` if one has failed in the same mode. Throws Misuse on all unless
// they run the same mode of one trainer at the same step with equally many samples and one learning rate. `first`: the words of
// all ranks.
void check_ranks_alike(Communicator& comm, const int64_t* first, const std::optional<StepFailure>& failure) {
  static const char* const kDoing[] = {"trains", "evaluates", "infers"};
  static const char* const kRuns[] = {"trains", "evaluates", "infers with"};
  bool is_alike = true, any_failed = false;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* theirs = first + rank * words;
    is_alike = is_alike && theirs[running] == first[running];
    any_failed = any_failed || theirs[has_failed] != 0;
  }
  if (is_alike && any_failed) throw PeerFailed(share_failure(comm, failure));
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* theirs = first + rank * words;
    if (theirs[of_trainer] != first[of_trainer])
      misuse(
          "rank 0 {} trainer {} of the mesh and rank {} trainer {}, in the order in which they were made: all ranks of '{}' call "
          "step, evaluate and infer of one trainer before those of another",
          kRuns[first[running]], first[of_trainer], rank, theirs[of_trainer], comm.name());
    if (theirs[running] != first[running] || theirs[at_step] != first[at_step])
      misuse("rank {} {} at step {} where rank {} {} at step {}: step, evaluate and infer are called by all ranks of '{}' alike",
             0, kDoing[first[running]], first[at_step], rank, kDoing[theirs[running]], theirs[at_step], comm.name());
    if (theirs[rate] != first[rate])
      misuse(
          "rank 0 has the learning rate {} in this step and rank {} has {}: ranks of '{}' that train one model need the same; do "
          "trainer:set_lr and the schedule depend on the rank?",
          std::bit_cast<double>(first[rate]), rank, std::bit_cast<double>(theirs[rate]), comm.name());
    if (theirs[divisor] != first[divisor])
      misuse(
          "rank 0 divides the gradients of this step by {} and rank {} by {}: ranks of '{}' that train one model need the same",
          std::bit_cast<double>(first[divisor]), rank, std::bit_cast<double>(theirs[divisor]), comm.name());
    if (theirs[field_shapes] != first[field_shapes])
      misuse(
          "the ranks 0 and {} of '{}' have micro-batches of other shapes: experts with capacity.pad exchange equally many rows, so "
          "give all ranks equally many samples and tokens, or leave pad = true out",
          rank, comm.name());
    if (theirs[rows] != first[rows])
      misuse("rank {} has {} samples and rank {} has {}: all ranks of '{}' take equal parts of a global batch", 0, first[rows],
             rank, theirs[rows], comm.name());
  }
}

// Adds the samples of a counted rank to `total`, once per group: those of a rank that states others than its rows, if there is
// one. `samplers`: by group, the rank whose samples are in the total.
void add_samples(const Communicator& comm, const int64_t* first, int rank, std::map<int64_t, int>& samplers, Counts& total) {
  const int64_t* theirs = first + rank * words;
  const auto [sampler, is_new] = samplers.emplace(theirs[group], rank);
  const int64_t* known = first + sampler->second * words;
  if (is_new) {
    total.samples += theirs[samples];
  } else if (known[samples] == known[rows]) {
    total.samples += theirs[samples] - known[samples];
    sampler->second = rank;
  } else if (theirs[samples] != theirs[rows] && theirs[samples] != known[samples]) {
    misuse(
        "the loss layers of the ranks {} and {} of '{}' count {} and {} samples in the same rows: the terms of one objective that are "
        "per sample are divided by one number; let them count the same",
        sampler->second, rank, comm.name(), known[samples], theirs[samples]);
  }
}

// Warns, once per process, if ranks that should have different samples have the same ones.
void warn_of_same_samples(const Communicator& comm, const int64_t* first) {
  static std::atomic<bool> is_said = false;
  if (comm.rank() != 0 || is_said) return;
  std::map<int64_t, int> readers;  // by samples: the first rank that has them
  // Rows of nothing but padding are equal on all ranks that have some.
  CountWord counted = samples;
  for (int rank = 0; rank < comm.size(); ++rank) {
    if (first[rank * words + tokens] != 0) counted = tokens;
  }
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* theirs = first + rank * words;
    if (theirs[rows] == 0 || theirs[counted] == 0 || theirs[field_values] == 0) continue;
    const int reader = readers.emplace(theirs[field_values], rank).first->second;
    if (first[reader * words + group] == theirs[group] || is_said.exchange(true)) continue;
    World place;
    place.size = comm.size();
    log(LogLevel::warn, place,
        fmt::format("the ranks {} and {} of '{}' train on the same samples: data-parallel ranks should read different ones. Give "
                    "data.tokens as `axis` all axes of zero.shard, or choose samples by the rank's coordinate",
                    reader, rank, comm.name()));
  }
}

}  // namespace

Counts sum_counts(Communicator& comm, Counts mine, Contribution adds, Mode mode, int64_t step) {
  const int64_t of_group = adds.group < 0 ? comm.rank() : adds.group, of_place = adds.place < 0 ? comm.rank() : adds.place;
  const at::Tensor own =
      at::tensor({mine.tokens, mine.samples, adds.rows < 0 ? mine.samples : adds.rows, static_cast<int64_t>(mode), step,
                  int64_t{adds.trainer}, int64_t{adds.is_counted}, of_group, of_place, static_cast<int64_t>(adds.samples.names),
                  static_cast<int64_t>(adds.samples.values), static_cast<int64_t>(adds.shapes), std::bit_cast<int64_t>(adds.lr),
                  std::bit_cast<int64_t>(adds.divisor), int64_t{adds.failure.has_value()}},
                 at::kLong);
  const at::Tensor all = at::empty({words * comm.size()}, at::kLong);
  comm.all_gather(all, own).synchronize();
  const auto* first = all.const_data_ptr<int64_t>();
  Counts total;
  std::map<int64_t, int> samplers, counters;           // by group: the counted rank whose samples count, and that whose tokens do
  std::map<std::pair<int64_t, int64_t>, int> readers;  // by group and names of fields: the first rank that has these fields
  std::map<int64_t, int> sharers;                      // by place: its first rank
  check_ranks_alike(comm, first, adds.failure);
  for (int rank = 0; rank < comm.size(); ++rank) {
    const int64_t* theirs = first + rank * words;
    const int sharer = sharers.emplace(theirs[place], rank).first->second;
    if (first[sharer * words + field_names] != theirs[field_names])
      misuse(
          "the ranks {} and {} of '{}' share the work of the same layers on the same samples, and their batches have other fields: give "
          "all ranks along the axes of cut layers and cut tokens the same batch",
          sharer, rank, comm.name());
    const int reader = readers.emplace(std::pair(theirs[group], theirs[field_names]), rank).first->second;
    if (first[reader * words + field_values] != theirs[field_values])
      misuse(
          "the ranks {} and {} of '{}' run parts of one model and read different samples: their data must not depend on the "
          "coordinate along the axes of a pipeline, of cut layers or of cut tokens (give data.tokens the data-parallel axis; was a "
          "batch changed on one rank?)",
          reader, rank, comm.name());
    if (theirs[is_counted] == 0) continue;
    add_samples(comm, first, rank, samplers, total);
    if (theirs[tokens] == 0) continue;
    const auto [counter, is_new] = counters.emplace(theirs[group], rank);
    if (is_new) total.tokens += theirs[tokens];
    else if (theirs[tokens] != first[counter->second * words + tokens])
      misuse(
          "the loss layers of the ranks {} and {} of '{}' count {} and {} valid tokens of the same samples: the terms of one objective "
          "are divided by one number; give them the same labels or make one a loss per sample",
          counter->second, rank, comm.name(), first[counter->second * words + tokens], theirs[tokens]);
  }
  warn_of_same_samples(comm, first);
  return total;
}

std::string find_failure(Communicator& control, const std::optional<StepFailure>& mine) {
  const at::Tensor failed = at::full({1}, mine ? 1 : 0, at::kLong);
  control.all_reduce(failed, failed).synchronize();
  return failed.item<int64_t>() > 0 ? share_failure(control, mine) : "";
}

void run_together(Communicator* control, const std::function<void()>& body) {
  if (!control) return body();
  std::optional<StepFailure> mine;
  std::exception_ptr failure;
  try {
    body();
  } catch (const Fault&) {
    throw;
  } catch (const std::exception& error) {
    failure = std::current_exception();
    mine = StepFailure{describe(error)};
  }
  const std::string first = find_failure(*control, mine);
  if (failure) std::rethrow_exception(failure);
  if (!first.empty()) throw Misuse(first);
}

}  // namespace zt
