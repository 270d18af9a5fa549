// The micro-batches of a run.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "execute/step/layer_table.h"
#include "zt/base/error.h"
#include "zt/execute/step_batch.h"
#include "zt/model/tokens.h"

namespace zt {

// Holds this rank's part of the global batch, with whole samples. Where a layer cuts their tokens, layers see the tokens of this
// rank in training and evaluation. In a step by hand the micro-batches come one by one.
// Threads: the rank's thread only.
class MicroBatches {
 public:
  MicroBatches(const LayerTable& layers, const StepState& state) : layers_(layers), state_(state) {}

  // `micro_batches`: all of the program's, or none by hand. Their tokens are cut, except for generation. `first_sample`: the
  // place of the first sample in the global batch. Throws Misuse if the tokens of a micro-batch cannot be cut, and then keeps
  // what it had.
  void begin(std::vector<Batch> micro_batches, const RankProgram& program, int64_t first_sample);
  // By hand: makes this the micro-batch with index `index`, the last one so far.
  void set(int index, Batch fields, int64_t first_sample);
  void clear() { parts_.clear(); }

  int count() const { return count_; }
  // Return the fields that layers see, and the place of the first sample of a micro-batch. One that was not given has no fields:
  // a rank whose step has failed still takes part in what its layers exchange.
  const Batch& fields(int index) const { return part(index).cut.empty() ? part(index).whole : part(index).cut; }
  int64_t first_sample(int index) const { return part(index).first_sample; }
  // Returns which tokens of the samples `fields` has.
  const TokenPlaces& tokens(int index) const { return part(index).tokens; }
  // Return those that were given so far, with whole samples, or as layers see them.
  std::vector<Batch> all() const;
  std::vector<Batch> seen() const;

  // Throw Misuse if a layer that this rank runs cannot take the fields of a micro-batch.
  void check(Mode mode) const;
  void check(int index, Mode mode) const;
  // Return the valid tokens and the samples of all micro-batches, or of one, counted by the layers that this rank runs. Samples
  // are the rows where no layer states their number. Throw Misuse if two loss layers count differently.
  Counts counts() const;
  Counts counts(int index) const;
  // Whether a layer of the model, on any rank, needs micro-batches of the same shapes on all ranks.
  bool need_equal_shapes() const;

  // Calls `body` and returns its result. Puts the layer's name, and the micro-batch if there are several, in front of its errors.
  template <class Body>
  auto with_layer_name(int position, int micro_batch, Body&& body) const {
    const auto where = [&] {
      const PositionInfo& info = layers_.info(position);
      const TokenPlaces& places = tokens(micro_batch);
      return fmt::format("layer '{}' ({}){}{}", info.name, info.kind,
                         count_ > 1 ? fmt::format(" in micro-batch {}", micro_batch) : "",
                         places.of_rank.size() > 1 ? fmt::format(" with {} of {} tokens", places.count(), places.total) : "");
    };
    return with_context(where, std::forward<Body>(body));
  }

 private:
  struct Part {
    Batch whole;
    int64_t first_sample = 0;  // its place in the global batch
    Batch cut = {};            // the tokens of this rank; empty where tokens are not cut
    TokenPlaces tokens = {};   // which tokens layers see
  };
  Part make_part(Batch whole, int64_t first_sample, bool can_cut) const;

  const Part& part(int index) const {
    static const Part none;
    return static_cast<size_t>(index) < parts_.size() ? parts_[static_cast<size_t>(index)] : none;
  }

  const LayerTable& layers_;
  const StepState& state_;
  std::vector<Part> parts_;
  int count_ = 1;
};

}  // namespace zt
