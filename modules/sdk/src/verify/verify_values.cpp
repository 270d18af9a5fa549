#include "verify.h"

namespace zt::verifier {

namespace {

// Floating-point sums depend on the order of their terms, so weight gradients are added in the order of micro-batches.
class SumOrderCheck : RankCheck {
 public:
  SumOrderCheck(const Subject& subject, Findings& findings)
      : RankCheck(subject, findings), latest_(subject.model.positions.size(), -1) {}

  // The action adds to the gradients of its position's weights.
  void add(int step) {
    const Action& action = subject_.action(step);
    const auto& units = subject_.model.positions[action.target].units;
    if (std::ranges::none_of(units, [&](int unit) { return subject_.is_trained(unit); })) return;
    int& latest = latest_[action.target];
    if (latest >= 0 && subject_.action(latest).micro_batch > action.micro_batch) {
      say(step,
          "it comes after {}: gradients are summed over micro-batches in ascending order, or their bits would depend on the "
          "schedule; put it before",
          subject_.at(latest));
    }
    latest = step;
  }

 private:
  std::vector<int> latest_;  // by position: the latest action that has added; -1: none
};

// Tracks every (position, micro-batch) through F, R and B.
class ValueCheck : RankCheck {
 public:
  ValueCheck(const Subject& subject, Findings& findings)
      : RankCheck(subject, findings),
        places_(subject.model.positions.size() * subject.program.micro_batches),
        readers_(subject.model.positions.size()),
        runs_(positions_run(subject.program, subject.model)),
        sum_order_(subject, findings) {
    find_first_actions();
    find_readers();
  }

  void run() {
    const Kinds& kinds = Kinds::get();
    for (int step = 0; step < subject_.size(); ++step) {
      const KindId id = subject_.action(step).kind;
      if (id == kinds.forward) forward(step);
      else if (id == kinds.recompute) recompute(step);
      else if (id == kinds.backward || id == kinds.input_grad) backward(step);
      else if (id == kinds.weight_grad) weight_gradient(step);
      else move(step);
      follow_gradients(step);
    }
    check_complete();
  }

 private:
  // Indices of actions, -1: none. The first three are actions that the walk has passed. The last two are the first F and the
  // first B of the whole program.
  struct Place {
    int forward = -1, recompute = -1, backward = -1, weights = -1;  // backward: B or I
    int first_forward = -1, first_backward = -1;
    int written = -1, freed = -1;  // the F, or another action that has put a value here or removed it
    int received_gradient = -1;    // an action other than a B that has put a gradient here
    int open_gradient = -1;        // an action that has put or added to a gradient here which no action has taken
    bool keeps_inputs = false;
  };

  Place& place(int position, int micro_batch) {
    return places_[static_cast<size_t>(position) * subject_.program.micro_batches + micro_batch];
  }
  Place& place_of(int step) { return place(subject_.action(step).target, subject_.action(step).micro_batch); }

  void find_first_actions() {
    for (int step = subject_.size() - 1; step >= 0; --step) {
      if (subject_.action(step).kind == Kinds::get().forward) place_of(step).first_forward = step;
      const KindId id = subject_.action(step).kind;
      if (id == Kinds::get().backward || id == Kinds::get().input_grad) place_of(step).first_backward = step;
    }
  }

  // Finds, for each position, the positions whose B gives it a gradient: they read a differentiable output of it.
  void find_readers() {
    for (size_t p = 0; p < subject_.model.positions.size(); ++p) {
      for (const Edge& edge : subject_.model.positions[p].inputs) {
        const bool is_differentiable = subject_.model.positions[edge.position].outputs[edge.output].differentiable;
        auto& readers = readers_[edge.position];
        const int reader = static_cast<int>(p);
        if (is_differentiable && (readers.empty() || readers.back() != reader)) readers.push_back(reader);
      }
    }
  }

  // Returns "comes later, as action 7 (B 2 0)" or "is missing".
  std::string whereabouts(int first) const { return first < 0 ? "is missing" : "comes later, as " + subject_.at(first); }

  // Checks that the values that the action reads are present.
  void check_reads(int step) {
    for (const Resource& read : subject_.resources[step].reads) {
      if (read.type != resource::value) continue;
      const Place& source = place(read.index, read.micro_batch);
      if (source.written < 0 && !runs_[read.index]) {
        say(step, "it reads the output of {}, which this rank neither runs nor has received: put a RECV before",
            subject_.position(read.index));
      } else if (source.written < 0) {
        say(step, "it reads the output of {}, whose F {} {} {}: put that F first", subject_.position(read.index), read.index,
            read.micro_batch, whereabouts(source.first_forward));
      } else if (source.freed >= 0 && source.freed != step) {
        say(step, "it reads the output of {}, which {} has freed: put it before", subject_.position(read.index),
            subject_.at(source.freed));
      }
    }
  }

  // Records the values and gradients that an action other than F, R and B puts or frees.
  void move(int step) {
    check_reads(step);
    for (const Resource& write : subject_.resources[step].writes) {
      if (write.type == resource::value) put_value(step, place(write.index, write.micro_batch));
      if (write.type == resource::value_grad) place(write.index, write.micro_batch).received_gradient = step;
    }
    for (const Resource& free : subject_.resources[step].frees) {
      if (free.type == resource::value) place(free.index, free.micro_batch).freed = step;
    }
  }

  // A value that was taken out of memory may come back; others are there from the first to the last.
  void put_value(int step, Place& place) {
    place.written = step;
    if (role_of(subject_.action(step)) == Role::movement) place.freed = -1;
  }

  // Notes which gradients of outputs were put and not yet taken.
  void follow_gradients(int step) {
    const Resources& declared = subject_.resources[step];
    const bool is_layer = role_of(subject_.action(step)) == Role::compute;
    for (const Resource& read : declared.reads) {
      if (read.type != resource::value_grad || is_layer) continue;
      if (place(read.index, read.micro_batch).open_gradient < 0)
        say(step, "it reads the gradient of the outputs of {}, to which nothing was added before: put it after the readers' B",
            subject_.position(read.index));
    }
    for (const Resource& free : declared.frees) {
      if (free.type == resource::value_grad) place(free.index, free.micro_batch).open_gradient = -1;
    }
    for (const Resource& write : declared.writes) {
      if (write.type == resource::value_grad) place(write.index, write.micro_batch).open_gradient = step;
    }
  }

  // Checks that each gradient that this rank adds to for another rank is sent to that rank.
  void check_gradients_taken() {
    for (size_t i = 0; i < places_.size(); ++i) {
      const int position = static_cast<int>(i / static_cast<size_t>(micro_batches()));
      if (places_[i].open_gradient < 0 || runs_[position]) continue;
      say(places_[i].open_gradient,
          "it adds to the gradient of the outputs of {}, which another rank runs, and no SEND_GRAD comes after",
          subject_.position(position));
    }
  }

  void forward(int step) {
    const Action& action = subject_.action(step);
    Place& mine = place_of(step);
    if (mine.forward >= 0)
      return say(step, "it repeats {}: each position runs once per micro-batch, remove one", subject_.at(mine.forward));
    check_reads(step);
    const Keep keep = action.keep();
    if (keep == Keep::none && mine.first_backward >= 0) {
      say(step, "it keeps nothing, but {} needs its graph: give keep=graph, or keep=inputs and an R",
          subject_.at(mine.first_backward));
    }
    mine.forward = mine.written = step;
    mine.keeps_inputs = keep == Keep::inputs;
  }

  void recompute(int step) {
    Place& mine = place_of(step);
    if (mine.forward < 0)
      return say(step, "it comes before its F, which {}: put it between F and B", whereabouts(mine.first_forward));
    if (mine.backward >= 0) return say(step, "it comes after its B, {}: put it between F and B", subject_.at(mine.backward));
    if (mine.recompute >= 0) return say(step, "it repeats {}: remove one", subject_.at(mine.recompute));
    if (!mine.keeps_inputs)
      say(step, "{} keeps its graph, so there is nothing to recompute: remove it or give keep=inputs", subject_.at(mine.forward));
    check_reads(step);
    mine.recompute = step;
  }

  void backward(int step) {
    const Action& action = subject_.action(step);
    Place& mine = place_of(step);
    if (mine.backward >= 0)
      return say(step, "it repeats {}: gradients would be added twice, remove one", subject_.at(mine.backward));
    mine.backward = step;
    if (action.kind == Kinds::get().backward) {
      mine.weights = step;
      sum_order_.add(step);
    }
    check_gradient(step, action, mine);
    if (mine.forward < 0)
      return say(step, "the backward comes before its F, which {}: put F first", whereabouts(mine.first_forward));
    if (mine.keeps_inputs && mine.recompute < 0) {
      say(step, "{} kept only its inputs: put an R before this", subject_.at(mine.forward));
    }
    check_reads(step);
    mine.freed = step;
  }

  void weight_gradient(int step) {
    Place& mine = place_of(step);
    if (mine.weights >= 0)
      return say(step, "it repeats {}: gradients would be added twice, remove one", subject_.at(mine.weights));
    if (mine.backward < 0) say(step, "its I has not run, which computes what it needs: put I {} first", place_text(step));
    mine.weights = step;
    sum_order_.add(step);
  }

  // Returns "2 0": position and micro-batch.
  std::string place_text(int step) const {
    return fmt::format("{} {}", subject_.action(step).target, subject_.action(step).micro_batch);
  }

  // Checks that the gradient of the outputs has been computed, or received from the ranks that run the readers.
  void check_gradient(int step, const Action& action, const Place& mine) {
    for (const int reader : readers_[action.target]) {
      const Place& other = place(reader, action.micro_batch);
      if (!runs_[reader]) {
        if (mine.received_gradient >= 0) continue;
        say(step,
            "it needs the gradient of its outputs from {}, which another rank runs, and has not received it: put a RECV_GRAD before",
            subject_.position(reader));
      } else if (other.backward < 0) {
        say(step, "it needs the gradient of its outputs from {}, whose B {} {} {}: put that B first", subject_.position(reader),
            reader, action.micro_batch, whereabouts(other.first_backward));
      }
    }
  }

  void check_complete() {
    report_missing("F", [](const Place& place) { return place.forward < 0; });
    if (!subject_.is_training()) return;
    check_gradients_taken();
    report_missing("B", [](const Place& place) { return place.backward < 0 && place.forward >= 0; });
    report_missing("W", [](const Place& place) { return place.weights < 0 && place.backward >= 0; });
  }

  template <class IsMissing>
  void report_missing(const char* name, IsMissing is_missing) {
    std::vector<size_t> missing;
    for (size_t i = 0; i < places_.size(); ++i) {
      const bool is_expected = subject_.program.split_axes.empty() || runs_[i / static_cast<size_t>(micro_batches())];
      if (is_expected && is_missing(places_[i])) missing.push_back(i);
    }
    if (missing.empty()) return;
    const auto more = missing.size() > 1 ? fmt::format(" (and {} others)", missing.size() - 1) : std::string();
    const int first = static_cast<int>(missing.front());
    say(-1, "{} {} {}{} is missing: each position of a {} program has one per micro-batch", name, first / micro_batches(),
        first % micro_batches(), more, subject_.is_training() ? "training" : "forward");
  }

  int micro_batches() const { return subject_.program.micro_batches; }

  std::vector<Place> places_;              // [position * micro_batches + micro_batch]
  std::vector<std::vector<int>> readers_;  // by position
  std::vector<bool> runs_;                 // by position: whether this rank runs it
  SumOrderCheck sum_order_;
};

}  // namespace

void check_values(const Subject& subject, Findings& findings) {
  ValueCheck(subject, findings).run();
}

}  // namespace zt::verifier
