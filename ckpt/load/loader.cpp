#include "loader.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <deque>
#include <set>

#include "folder/store.h"
#include "format/master.h"
#include "format/user_block.h"
#include "tensor_reader.h"
#include "zt/base/error.h"
#include "zt/base/stateful.h"
#include "zt/io/input_file.h"
#include "zt/io/small_files.h"

namespace zt::ckpt {

namespace {

constexpr int64_t kLargestMaster = int64_t{4} << 30;  // bytes

// Returns a tensor that is `copies` copies of `dense` along a new first dim. It reads the bytes of `dense`.
SavedTensor stack_of(const SavedTensor& dense, int64_t copies) {
  SavedTensor stack{.name = dense.name, .dtype = dense.dtype, .shape = dense.shape};
  stack.shape.insert(stack.shape.begin(), copies);
  for (int64_t copy = 0; copy < copies; ++copy) {
    for (SavedPiece piece : dense.pieces) {
      for (Box& box : piece.region.boxes) {
        box.begin.insert(box.begin.begin(), copy);
        box.end.insert(box.end.begin(), copy + 1);
      }
      stack.pieces.push_back(std::move(piece));
    }
  }
  return stack;
}

// Loads tensors and values into objects. Reads the tensors of an object together, after its walk has named all of them.
class LoadVisitor final : public Visitor {
 public:
  LoadVisitor(io::FileSystem& files, const Ranks& ranks, const std::string& folder, const MasterIndex& index,
              const Matches& matches)
      : files_(files), ranks_(ranks), folder_(folder), index_(index), matches_(matches) {}
  void enter(const std::string& prefix) { prefix_ = prefix; }

  bool is_load() const override { return true; }
  void tensor(const std::string&, const std::vector<int64_t>& shape, Piece piece) override {
    const int source = matches_.tensors.at(part_);
    const int64_t copies = matches_.copies.at(part_++);
    if (source == Matches::kDropped) clear(piece);
    if (source < 0) return;
    const SavedTensor* tensor = &index_.tensors[source];
    if (copies > 0) tensor = &stacks_.emplace_back(stack_of(*tensor, copies));
    const ReadRequest request{tensor, {piece.boxes, piece.first, piece.count}, piece.data};
    if (piece.source) elsewhere_.push_back({tensor, std::move(piece)});
    else (tensor->shape == shape ? requests_ : sums_).push_back(request);
  }
  void end_of_tensors() override {
    const auto shards = static_cast<int64_t>(index_.shards.size());
    ranks_.together([&] {
      read_tensors(files_, folder_, index_, requests_, shards * ranks_.rank() / ranks_.size());
      for (const ReadRequest& request : sums_) read_sum(request);
      read_elsewhere(shards * ranks_.rank() / ranks_.size());
    });
    requests_.clear();
    elsewhere_.clear();
    sums_.clear();
    stacks_.clear();
  }
  void value(const std::string& name, Value& value) override {
    const auto found = matches_.values.find(prefix_ + name);
    if (found != matches_.values.end()) value = values_of(index_).at(found->second);
  }

 private:
  // A piece whose elements do not lie in memory.
  struct Elsewhere {
    const SavedTensor* tensor;
    Piece piece;
  };
  static constexpr int64_t kWindow = int64_t{8} << 20;  // most elements that are in memory at the same time

  static void clear(const Piece& piece) {
    if (!piece.source) {
      at::Tensor(piece.data).zero_();
      return;
    }
    for (int64_t first = 0; first < piece.count; first += kWindow)
      piece.source->write(first, at::zeros({std::min(kWindow, piece.count - first)}, piece.dtype()));
  }

  // Loads pieces that do not lie in memory through windows. Several small ones are read together.
  void read_elsewhere(int64_t first_shard) const {
    std::vector<std::pair<const Piece*, int64_t>> places;  // of the windows that are read next: a piece and its element
    std::vector<ReadRequest> windows;
    int64_t elements = 0;
    const auto flush = [&] {
      read_tensors(files_, folder_, index_, windows, first_shard);
      for (size_t i = 0; i < windows.size(); ++i) places[i].first->source->write(places[i].second, windows[i].to);
      places.clear();
      windows.clear();
      elements = 0;
    };
    for (const auto& [tensor, piece] : elsewhere_) {
      for (int64_t first = 0; first < piece.count;) {
        const int64_t count = std::min(kWindow - elements, piece.count - first);
        places.emplace_back(&piece, first);
        windows.push_back({tensor, {piece.boxes, piece.first + first, count}, at::empty({count}, piece.dtype())});
        first += count;
        elements += count;
        if (elements == kWindow) flush();
      }
    }
    flush();
  }

  // Gives the first row the sum of all saved rows, and the others zeros.
  void read_sum(const ReadRequest& request) const {
    at::Tensor sum = request.to;
    sum.zero_();
    Box row = request.region.boxes.front();
    if (row.begin.front() > 0) return;
    const at::Tensor values = at::empty_like(sum);
    for (int64_t saved = 0; saved < request.tensor->shape.front(); ++saved) {
      row.begin.front() = saved;
      row.end.front() = saved + 1;
      read_tensors(files_, folder_, index_, {{request.tensor, {{row}, 0, sum.numel()}, values}});
      sum.add_(values);
    }
  }

  io::FileSystem& files_;
  const Ranks& ranks_;
  const std::string& folder_;
  const MasterIndex& index_;
  const Matches& matches_;
  std::string prefix_;
  size_t part_ = 0;
  std::vector<ReadRequest> requests_;
  std::vector<Elsewhere> elsewhere_;
  std::vector<ReadRequest> sums_;   // of tensors that have another number of rows (Visitor::rows_of_ranks)
  std::deque<SavedTensor> stacks_;  // of requests for copies
};

// Replaces the references in values by the tensors that they refer to, whole on every rank.
void read_referred(io::FileSystem& files, const std::string& folder, const MasterIndex& index, Value::Table& values) {
  std::vector<ReadRequest> requests;
  for (auto& [name, value] : values) {
    for_each_reference(value, [&](Value& reference, const std::string& tensor) {
      const auto saved = std::ranges::find(index.tensors, tensor, &SavedTensor::name);
      if (saved == index.tensors.end())
        fault("the checkpoint '{}' lacks the tensor '{}' that its value '{}' needs", folder, tensor, name);
      const at::Tensor whole = at::empty(saved->shape, saved->dtype);
      requests.push_back({&*saved, whole_region(saved->shape), whole.view({-1})});
      reference = whole;
    });
  }
  read_tensors(files, folder, index, requests);
}

// Throws a Fault on all ranks, before anything changes, if a shard with a tensor that any of them loads is missing.
void check_shards(io::FileSystem& files, const Ranks& ranks, const std::string& folder, const MasterIndex& index,
                  const Matches& matches) {
  ranks.together([&] {
    std::set<int32_t> shards;
    for (const int tensor : matches.tensors) {
      if (tensor < 0) continue;
      for (const SavedPiece& piece : index.tensors[static_cast<size_t>(tensor)].pieces) {
        if (piece.region.count > 0) shards.insert(piece.shard);
      }
    }
    for (const int32_t shard : shards) {
      const std::string path = folder + "/" + index.shards[static_cast<size_t>(shard)].file;
      if (files.kind_of(path) == io::EntryKind::missing) fault("cannot open '{}': No such file or directory", path);
    }
  });
}

// Throws Misuse on all ranks if experts are to be copies of dense MLPs, and no rank has found such MLPs.
void check_upcycling(const Ranks& ranks, const std::string& folder, const Matches& matches, const MatchOptions& options) {
  if (!options.upcycle || ranks.any(matches.has_dense)) return;
  misuse(
      "ckpt.load: upcycle = true, but the model has no experts 'P.experts...' for which the checkpoint '{}' has a dense MLP "
      "'P.mlp...': remove upcycle if the checkpoint has experts, or rename its MLPs with map = {{...}}",
      folder);
}

// Says what becomes of tensors of which each rank had values of its own (Visitor::rows_of_ranks). Collective.
void warn_of_rows(const Ranks& ranks, const std::string& folder, const std::vector<std::string>& names, const char* what) {
  const auto of_ranks = ranks.gather(fmt::format("{}", fmt::join(names, ", ")));
  for (const std::string& each : of_ranks) {
    if (each.empty()) continue;
    return ranks.warn(fmt::format("the checkpoint '{}' is of another layout, whose ranks had values of their own of {}: {}",
                                  folder, each, what));
  }
}

}  // namespace

MasterIndex read_index(io::FileSystem& files, const std::string& folder) {
  const std::string path = folder + "/" + kMaster;
  // Checks the first bytes before reading the rest, so that a large file of another kind is refused at once.
  const io::InputFile file(path, files);
  check_master_start(file.first_bytes(std::min(file.size(), kUserBlock)), file.size(), path);
  return read_master(io::read_small(files, path, kLargestMaster), path);
}

Value::Table load(io::FileSystem& files, const Ranks& ranks, const std::string& folder, const Objects& objects,
                  const MatchOptions& options) {
  MasterIndex index;
  ranks.together([&] { index = read_index(files, folder); });
  Matches matches;
  ranks.together([&] { matches = match(contents_of(objects, ValueTensors::left_out), index, options); });
  std::vector<uint8_t> is_used = matches.is_used;
  ranks.max(is_used);
  check_upcycling(ranks, folder, matches, options);
  const std::string wrong = problems(matches, index, is_used, options);
  ranks.together([&] {
    if (options.strict && !wrong.empty())
      misuse(
          "the checkpoint '{}' does not fit:{}\nload a part of it with only = {{...}}, rename with map = {{...}}, or take what "
          "fits with strict = false",
          folder, wrong);
  });
  const auto of_ranks = ranks.gather(wrong);
  for (const std::string& each : std::set(of_ranks.begin(), of_ranks.end())) {
    if (!each.empty()) ranks.warn(fmt::format("of the checkpoint '{}' only what fits is loaded:{}", folder, each));
  }
  warn_of_rows(ranks, folder, matches.summed, "the first rank begins with their sum, and the others with zeros");
  warn_of_rows(ranks, folder, matches.dropped, "all begin with zeros");
  check_shards(files, ranks, folder, index, matches);
  LoadVisitor visitor(files, ranks, folder, index, matches);
  for (const auto& [prefix, value] : objects) {
    const auto* object = value.get_if<Object>();
    if (!object) continue;
    visitor.enter(prefix);
    object->stateful()->visit(visitor);
  }
  Value::Table values;
  for (const auto& [name, saved] : matches.values) values[name] = values_of(index).at(saved);
  ranks.together([&] { read_referred(files, folder, index, values); });
  return values;
}

}  // namespace zt::ckpt
