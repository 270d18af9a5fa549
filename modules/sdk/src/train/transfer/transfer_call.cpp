#include "transfer_call.h"

#include <algorithm>
#include <chrono>

#include "train/by_hand.h"
#include "train/store/whole_tensors.h"
#include "whole_moves.h"
#include "zt/base/error.h"
#include "zt/base/hash.h"
#include "zt/train/trainer.h"

namespace zt {

namespace {

std::string text_of_options(const TransferOptions& options) {
  std::string text = fmt::format("only {} buckets {}", fmt::join(options.only, " | "), options.bucket_bytes);
  for (const AdapterProduct& each : options.merged)
    text += fmt::format("; {} + {} {} {} at {}", each.matrix, each.scale, each.b, each.a, each.first_row);
  for (const auto& [name, source] : options.sources) text += fmt::format("; {} of {}", name, source);
  return text;
}

// Returns the axis over all ranks on which both trainers lie; null if each rank works by itself.
std::shared_ptr<Axis> world_of(const Store& from, const Store& to) {
  const auto &mesh_to = to.plan().program().mesh(), &mesh_from = from.plan().program().mesh();
  const auto& mesh = mesh_to ? mesh_to : mesh_from;
  return mesh && mesh->shape().world_size() > 1 ? mesh->world() : nullptr;
}

// Returns the bytes of a bucket. In memory that ranks share, small ones stay in caches; a part of a tensor that all ranks need
// has 64 KiB at least.
int64_t bucket_of(const Axis* world, int64_t most) {
  if (!world || !world->communicator->shares_memory()) return most;
  return std::min(most, std::max(int64_t{1} << 20, int64_t{world->size} << 17));
}

// Calls `body` and adds what it throws to the lines.
void note(std::string& lines, const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    lines += fmt::format("\n  {}", describe(error));
  }
}

}  // namespace

const KeptTransfers::Entry* KeptTransfers::find(int64_t from, const std::string& options) const {
  const auto found =
      std::ranges::find_if(entries_, [&](const auto& entry) { return entry->from == from && entry->options == options; });
  return found == entries_.end() ? nullptr : found->get();
}

const KeptTransfers::Entry& KeptTransfers::add(Entry entry) {
  if (entries_.size() == kMost) entries_.erase(entries_.begin());
  return *entries_.emplace_back(std::make_unique<Entry>(std::move(entry)));
}

TransferCall::TransferCall(TrainerTensors& from, TrainerTensors& to, const TransferOptions& options)
    : from_(from), to_(to), options_(options), text_(text_of_options(options)), world_(world_of(from.store_, to.store_)) {}

// Whether masters that have memory of their own are read.
bool TransferCall::needs_masters_of_from() const {
  const Precision& given = from_.store_.plan().main().precision;
  const Precision& wanted = to_.store_.plan().main().precision;
  if (!given.is_mixed() || !from_.store_.plan().trains()) return false;
  const bool is_packed = std::ranges::any_of(
      pairs_, [&](const TensorPair& pair) { return !to_.store_.is_buffer(pair.to) && to_.store_.info(pair.to).is_packed(); });
  return is_packed || !options_.merged.empty() || wanted.params != given.params || to_.store_.plan().trains();
}

// Notes why the data of the trainers cannot be read or set.
void TransferCall::check_data(std::string& lines) const {
  const auto check = [&](const TrainerTensors& of, const char* call, bool needs_masters) {
    Health& health = of.running_->runs.health();
    note(lines, [&] { health.require_alive(); });
    note(lines, [&] { of.running_->by_hand.refuse("zt.transfer"); });
    note(lines, [&] { health.require_here(call, {TrainerData::parameters}); });
    if (needs_masters) note(lines, [&] { health.require_here(call, {TrainerData::optimizer}); });
  };
  check(from_, "zt.transfer from this trainer", needs_masters_of_from());
  const bool has_masters = to_.has_own_masters() && to_.store_.plan().trains();
  check(to_, "zt.transfer to this trainer", has_masters);
  const Health &giver = from_.running_->runs.health(), &taker = to_.running_->runs.health();
  if (!giver.half_changed().empty()) lines += fmt::format("\n  the trainer to read from: {}", giver.half_changed());
  const bool is_mended = taker.is_half_transferred() && options_.only.empty();
  if (!taker.half_changed().empty() && !is_mended) lines += fmt::format("\n  the trainer to set: {}", taker.half_changed());
}

// Returns all reasons why nothing can move; empty if all can.
std::string TransferCall::complaints() {
  std::string lines;
  const auto& mesh = to_.store_.plan().program().mesh();
  const auto& other = from_.store_.plan().program().mesh();
  if (&from_ == &to_) lines += "\n  both are the same trainer";
  if (mesh && other && mesh->rank() != other->rank())
    lines += fmt::format("\n  this is rank {} of one mesh and rank {} of the other", other->rank(), mesh->rank());
  if (options_.bucket_bytes < kRunAlign) lines += fmt::format("\n  a bucket of {} bytes holds no element", options_.bucket_bytes);
  note(lines, [&] {
    ComparedTrainers compared = compare_trainers(from_.store_, to_.store_, options_);
    for (const std::string& line : compared.differences) lines += "\n  " + line;
    pairs_ = std::move(compared.pairs);
  });
  if (from_.running_ && to_.running_) check_data(lines);
  return lines;
}

// Throws on all ranks, the same text, unless none has a complaint and all transfer the same.
void TransferCall::agree(const std::string& complaint) const {
  const std::string begin = "zt.transfer: the trainers do not fit, so nothing has moved:";
  if (!world_) {
    if (!complaint.empty()) misuse("{}{}", begin, complaint);
    return;
  }
  const auto number = [](const TrainerTensors& of) { return of.store_.state().links->trainer(); };
  const std::string mine = fmt::format("trainer {} to trainer {} ({})", number(from_), number(to_), text_);
  const auto all = world_->control->all_gather_values(Value::List{mine, complaint}, "transfers parameters");
  const auto word = [&](size_t rank, size_t index) { return *(*all[rank].get_if<Value::List>())[index].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (word(rank, 0) != word(0, 0))
      misuse(
          "zt.transfer: rank 0 moves {}, and rank {} moves {}, in the order in which trainers were made: all ranks make the same "
          "calls",
          word(0, 0), rank, word(rank, 0));
  }
  std::vector<std::string> different;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string text = word(rank, 1);
    if (!text.empty() && std::ranges::find(different, text) == different.end()) different.push_back(text);
  }
  if (!different.empty()) misuse("{}{}", begin, fmt::join(different, ""));
}

// Returns the plan of this transfer. Collective, and the same on all ranks.
const KeptTransfers::Entry& TransferCall::prepared() {
  if (!to_.kept_) to_.kept_ = std::make_shared<KeptTransfers>();
  const int64_t number = from_.store_.number();
  if (const auto* known = to_.kept_->find(number, text_)) return *known;
  const int ranks = world_ ? world_->size : 1, rank = world_ ? world_->coordinate : 0;
  const TransferSide from(from_.store_, ranks), to(to_.store_, ranks);
  const int64_t bucket_bytes = bucket_of(world_.get(), options_.bucket_bytes), most_bytes = bucket_bytes / (2 * ranks);
  KeptTransfers::Entry entry{number, text_, pairs_, moves_of(from, to, pairs_, options_.merged, rank, most_bytes), {}};
  std::string lines;
  for (const std::string& line : differences_of_cuts(entry.moves, from, to, rank, ranks)) lines += "\n  " + line;
  agree(lines);
  std::vector<TransferLane> lanes;
  for (const LaneKind& kind : entry.moves.lanes) lanes.push_back(lane_of(kind, from, to, rank, ranks, most_bytes));
  entry.plan = make_transfer_plan(lanes, rank, world_ ? world_->control.get() : nullptr, bucket_bytes);
  return to_.kept_->add(std::move(entry));
}

// A rank takes from itself what it has. Ranks of a trainer without a mesh have models of their own: they must be equal where they
// become parts of one model. Throws on all ranks. Collective.
void TransferCall::check_own_models() const {
  if (!world_ || from_.store_.plan().program().mesh()) return;
  const auto hash_of = [](const at::Tensor& values) {
    const at::Tensor host = values.cpu().contiguous();
    return fmt::format("{:016x}", stable_hash({static_cast<const char*>(host.const_data_ptr()), host.nbytes()}));
  };
  Value::List hashes;
  for (const TensorPair& pair : pairs_) {
    std::string hash = hash_of(whole_tensors::parameter(from_.store_, pair.from));
    if (needs_masters_of_from()) hash += hash_of(whole_tensors::master(from_.store_, pair.from));
    hashes.emplace_back(std::move(hash));
  }
  const auto all = world_->control->all_gather_values(Value(hashes), "transfers parameters of a model on each rank");
  const auto word = [&](size_t rank, size_t index) { return *(*all[rank].get_if<Value::List>())[index].get_if<std::string>(); };
  for (size_t rank = 0; rank < all.size(); ++rank) {
    for (size_t index = 0; index < pairs_.size(); ++index) {
      if (word(rank, index) == word(0, index)) continue;
      misuse(
          "zt.transfer: the trainer to read from has no mesh, so each rank has a model of its own, and the ranks 0 and {} have "
          "different values of '{}': nothing has moved. Give them equal values, or read from a trainer with a mesh",
          rank, from_.store_.tensors()[pairs_[index].from].name);
    }
  }
}

MovedBytes TransferCall::move(const KeptTransfers::Entry& entry) {
  std::vector<TransferEnds> ends;
  for (const LaneKind& kind : entry.moves.lanes) ends.push_back(ends_of(kind, from_.store_, to_.store_));
  FirstFailure failure;
  ++to_.store_.state().replacements;
  Health& health = to_.running_->runs.health();
  health.set_half_transferred("it did not end");
  MovedBytes moved = move_rounds(entry.plan, ends, world_ ? world_->communicator.get() : nullptr, failure);
  const MovedBytes whole = move_whole(entry.moves.whole, from_.store_, to_.store_, failure);
  moved.sent += whole.sent, moved.local += whole.local;
  try {
    failure.share(world_ ? world_->control.get() : nullptr);
  } catch (const std::exception& error) {
    health.set_half_transferred(describe(error));
    throw;
  }
  health.set_sound();
  return moved;
}

TransferReport TransferCall::run() {
  const auto begin = std::chrono::steady_clock::now();
  agree(complaints());
  TransferReport report{static_cast<int64_t>(pairs_.size())};
  if (!from_.running_ || !to_.running_) return report;
  from_.drain();
  to_.drain();
  check_own_models();
  const KeptTransfers::Entry& entry = prepared();
  to_.running_->runs.health().guard([&] {
    const MovedBytes moved = move(entry);
    report.sent_bytes = moved.sent, report.local_bytes = moved.local;
  });
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

TransferReport transfer(Trainer& from, Trainer& to, const TransferOptions& options) {
  return TransferCall(from.tensors(), to.tensors(), options).run();
}

}  // namespace zt
