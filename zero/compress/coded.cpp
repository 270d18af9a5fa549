// Reduction with codes: each rank encodes its gradient and sends to each other rank the part that this one sums. Where all ranks
// need all of the sum, each encodes its part of it, and keeps what these codes lack, too.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "compress/codec.h"
#include "compress/reduction.h"
#include "zt/execute/gradient_sum.h"

namespace zt::zero {

namespace {

constexpr int64_t kHead = 8;  // bytes before the codes for a rank: whether the sender can go on

class Coded final : public Compressor {
 public:
  explicit Coded(const Codec& codec) : codec_(codec) {}

  int64_t sent_bytes(const ModelInfo& model, int unit, int ranks, bool sums_all, at::ScalarType) const override {
    const int64_t bytes = codes_of(residual_elements(model.units.at(unit)));
    return (sums_all ? 2 : 1) * (ranks - 1) * bytes / ranks;
  }

  void reduce(const std::vector<Reduced>& units, Communicator& comm, const StepState& state, bool is_failed) override {
    const Cut cut(units, comm);
    const bool can_send = !is_failed && std::ranges::all_of(units, is_finite);
    const at::Tensor sent = at::empty({cut.begin_of(comm.size(), *this)}, at::kByte);
    for (const Reduced& each : units) {
      if (can_send) head_of(each).add_(each.unit.grad.narrow(0, 0, numel_of(each)));
    }
    std::vector<int64_t> to_ranks;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const int64_t begin = cut.begin_of(rank, *this);
      to_ranks.push_back(cut.begin_of(rank + 1, *this) - begin);
      sent.narrow(0, begin, kHead).fill_(can_send ? 0 : 1);
      if (!can_send) continue;
      for_each_part(cut, rank, sent.narrow(0, begin, to_ranks.back()),
                    [&](const Reduced& each, const at::Tensor& bytes, auto of) { codec_.encode(of(each.residual), bytes); });
    }
    clear_residuals(units, state);
    const int64_t mine = to_ranks[static_cast<size_t>(comm.rank())];
    const at::Tensor received = at::empty({mine * comm.size()}, at::kByte);
    comm.all_to_all(received, sent, std::vector<int64_t>(to_ranks.size(), mine), to_ranks).synchronize();
    bool is_usable = true;
    for (int rank = 0; rank < comm.size(); ++rank) is_usable = is_usable && received[rank * mine].item<uint8_t>() == 0;
    if (!is_usable) return fail(units, state);
    finish(cut, comm, sum_up(cut, received));
    clear_residuals(units, state);  // codes of zeros need not be zeros
    for (const Reduced& each : units) clear_gaps(state, each.unit.index, each.out, each.first);
  }

 private:
  static void clear_residuals(const std::vector<Reduced>& units, const StepState& state) {
    for (const Reduced& each : units) clear_gaps(state, each.unit.index, each.residual, 0);
  }

  // How the ranks divide the units' elements among them.
  struct Cut {
    const std::vector<Reduced>& units;
    std::vector<FlatLayout> layouts;
    int rank, ranks;

    Cut(const std::vector<Reduced>& units, const Communicator& comm) : units(units), rank(comm.rank()), ranks(comm.size()) {
      for (const Reduced& each : units) layouts.emplace_back(each.residual.numel(), comm.size());
    }
    // Returns the first byte of the message for a rank.
    int64_t begin_of(int rank, const Coded& coded) const {
      int64_t bytes = 0;
      for (int before = 0; before < rank; ++before) bytes += kHead + coded.codes_of(elements_of(before));
      return bytes;
    }
    int64_t elements_of(int rank) const {
      int64_t elements = 0;
      for (const FlatLayout& layout : layouts) elements += layout.end(rank) - layout.begin(rank);
      return elements;
    }
  };

  int64_t codes_of(int64_t elements) const { return elements / kCodeBlock * codec_.block_bytes(); }
  static int64_t numel_of(const Reduced& each) { return std::min(each.residual.numel(), each.unit.grad.numel()); }
  // The elements of the residual that the gradient has.
  static at::Tensor head_of(const Reduced& each) { return each.residual.narrow(0, 0, numel_of(each)); }
  static bool is_finite(const Reduced& each) {  // a sum of 16-bit numbers in their own type may overflow
    return std::isfinite(each.unit.grad.sum(at::kDouble).item<double>());
  }

  // Calls each(unit, codes, of) for the part of each unit that `rank` sums; of(flat) is that part of a tensor over the unit.
  template <class Each>
  void for_each_part(const Cut& cut, int rank, const at::Tensor& message, const Each& each) const {
    int64_t at = kHead;
    for (size_t i = 0; i < cut.units.size(); ++i) {
      const int64_t begin = cut.layouts[i].begin(rank), count = cut.layouts[i].end(rank) - begin, bytes = codes_of(count);
      each(cut.units[i], message.narrow(0, at, bytes), [&](const at::Tensor& flat) { return flat.narrow(0, begin, count); });
      at += bytes;
    }
  }

  // Returns, by unit, the sum of this rank's part, in the order of ranks.
  std::vector<at::Tensor> sum_up(const Cut& cut, const at::Tensor& received) const {
    std::vector<at::Tensor> sums;
    for (size_t i = 0; i < cut.units.size(); ++i)
      sums.push_back(at::zeros({cut.layouts[i].end(cut.rank) - cut.layouts[i].begin(cut.rank)}, cut.units[i].residual.options()));
    const int64_t mine = received.numel() / cut.ranks;
    for (int rank = 0; rank < cut.ranks; ++rank) {
      size_t unit = 0;
      for_each_part(cut, cut.rank, received.narrow(0, rank * mine, mine),
                    [&](const Reduced&, const at::Tensor& codes, auto) { codec_.decode_add(codes, sums[unit++]); });
    }
    return sums;
  }

  // Writes the sums to where they belong. Ranks that all need all of them send theirs in codes.
  void finish(const Cut& cut, Communicator& comm, const std::vector<at::Tensor>& sums) const {
    if (!cut.units.front().sums_all()) {
      for (size_t i = 0; i < sums.size(); ++i) {
        const at::Tensor& out = cut.units[i].out;
        if (!out.is_alias_of(cut.units[i].unit.grad)) out.zero_();
        out.narrow(0, 0, sums[i].numel()).copy_(sums[i]);
      }
      return;
    }
    int64_t longest = 0;
    for (int rank = 0; rank < cut.ranks; ++rank) longest = std::max(longest, kHead + codes_of(cut.elements_of(rank)));
    const at::Tensor mine = at::zeros({longest}, at::kByte), all = at::empty({longest * cut.ranks}, at::kByte);
    size_t unit = 0;
    for_each_part(cut, cut.rank, mine, [&](const Reduced& each, const at::Tensor& codes, auto of) {
      codec_.encode(sums[unit], codes);
      of(each.residual).add_(sums[unit++]);
    });
    comm.all_gather(all, mine).synchronize();
    for (int rank = 0; rank < cut.ranks; ++rank) {
      for_each_part(cut, rank, all.narrow(0, rank * longest, longest),
                    [&](const Reduced& each, const at::Tensor& codes, auto of) {
                      const at::Tensor values = at::zeros({of(each.residual).numel()}, each.residual.options());
                      codec_.decode_add(codes, values);
                      of(each.out).copy_(values);
                    });
    }
  }

  const Codec& codec_;
};

}  // namespace

std::shared_ptr<Compressor> make_int8() {
  return std::make_shared<Coded>(int8_codec());
}

std::shared_ptr<Compressor> make_onebit() {
  return std::make_shared<Coded>(onebit_codec());
}

}  // namespace zt::zero
