// REDUCE_GRAD and UNSHARD with ranks as threads. Both stages must give the same bits as sums computed in this file.
#include "handlers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/group.h"
#include "mesh/make_backend.h"
#include "sdk/program/program_models.h"
#include "support/spawn.h"
#include "zero/shard_support.h"
#include "zt/base/error.h"
#include "zt/random/rng.h"

namespace zt::test {
namespace {

std::shared_ptr<Communicator> world_axis(const World& world) {
  return comm::make_communicator(world, "local", comm::whole_group(world, "dp"), {.timeout = std::chrono::seconds(30)});
}

// Returns numbers of very different magnitude, so that the bits of a sum depend on its order.
at::Tensor gradient_of(int unit, int rank, int micro_batch, int64_t n) {
  std::vector<double> values(static_cast<size_t>(n));
  Philox::keyed(7, Purpose::user, static_cast<uint64_t>(unit), static_cast<uint64_t>(rank * 100 + micro_batch))
      .normal(0, 0, values);
  for (double& value : values) value = value * value * value * 1000 + value;
  return at::tensor(values, at::kDouble).to(at::kFloat);
}

// The fixed summation tree of comm/core/reduce_tree.h: T(a, b) = T(a, m) + T(m, b), where m = a + the largest power of two
// below b - a.
at::Tensor tree_sum(const std::vector<at::Tensor>& parts, size_t begin, size_t end) {
  if (end - begin == 1) return parts[begin];
  size_t half = 1;
  while (half * 2 < end - begin) half *= 2;
  return tree_sum(parts, begin, begin + half) + tree_sum(parts, begin + half, end);
}

Unit make_unit(int index, int64_t numel, const UnitPlan& plan, const Communicator& comm) {
  Unit unit;
  unit.index = index;
  unit.plan = plan;
  const bool is_sharded = plan.state == Residence::sharded;
  unit.layout = FlatLayout(numel, is_sharded ? comm.size() : 1);
  unit.rank = is_sharded ? comm.rank() : 0;
  unit.full = at::zeros({unit.layout.padded()});
  unit.shard = unit.master = unit.full.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
  unit.grad = at::zeros({unit.layout.padded()});
  unit.grad_shard = unit.grad.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
  unit.grad_sum = at::empty_like(unit.grad_shard);
  return unit;
}

// Every communicator is the same one.
class OneLink : public Links {
 public:
  explicit OneLink(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) {}
  Communicator& comm(const std::vector<std::string>&) const override { return *comm_; }
  Communicator& control(const std::vector<std::string>&) const override { return *comm_; }
  Communicator& holders(const Unit&) const override { return *comm_; }
  Channel& channel(const Message&) const override { misuse("there are no messages"); }
  at::Device device() const override { return at::kCPU; }

 private:
  std::shared_ptr<Communicator> comm_;
};

struct Rank {
  std::shared_ptr<Communicator> comm;
  StepState state;
  std::map<KindId, std::shared_ptr<ActionHandler>> handlers;
};

Rank make_rank(const World& world, const ModelInfo& model, const std::vector<UnitPlan>& plans) {
  Rank rank{world_axis(world), {}, {}};
  rank.state.model = nullptr;
  rank.state.links = std::make_shared<const OneLink>(rank.comm);
  for (size_t unit = 0; unit < plans.size(); ++unit) {
    rank.state.units.push_back(make_unit(static_cast<int>(unit), model.units[unit].numel, plans[unit], *rank.comm));
  }
  for (const auto& [kind, handler] : zero::make_handlers()) rank.handlers[kind] = handler;
  return rank;
}

// Runs the actions that zero inserted into a training program. As in the executor, a backward adds made-up gradients to its
// units, or overwrites gradients that were already reduced. Each work is waited for before the next action.
void run_step(const RankProgram& program, const ModelInfo& model, Rank& rank) {
  std::vector<bool> is_open(model.units.size(), false);
  Work in_flight;
  for (const Action& action : program.actions) {
    in_flight.wait();
    in_flight = Work();
    if (action.kind == Kinds::get().backward) {
      for (const int unit : model.positions[action.target].units) {
        const at::Tensor gradient = gradient_of(unit, rank.comm->rank(), action.micro_batch, model.units[unit].numel);
        const at::Tensor sum = rank.state.units[unit].grad.narrow(0, 0, gradient.numel());
        if (is_open[unit]) sum.add_(gradient);
        else sum.copy_(gradient);
        is_open[unit] = true;
      }
    } else if (action.kind == Kinds::get().reduce_grad) {
      for (const int unit : action.units()) is_open[unit] = false;
      in_flight = rank.handlers.at(action.kind)->start(action, rank.state);
    }
  }
  in_flight.wait();
}

std::vector<at::Tensor> expected_gradients(const ModelInfo& model, int ranks, int micro_batches, bool each_micro_batch) {
  std::vector<at::Tensor> expected;
  for (size_t unit = 0; unit < model.units.size(); ++unit) {
    const auto part = [&](int rank, int m) { return gradient_of(static_cast<int>(unit), rank, m, model.units[unit].numel); };
    const auto over_ranks = [&](auto of_rank) {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < ranks; ++rank) parts.push_back(of_rank(rank));
      return tree_sum(parts, 0, parts.size());
    };
    const auto over_micro_batches = [&](auto of_micro_batch) {
      at::Tensor sum = of_micro_batch(0);
      for (int m = 1; m < micro_batches; ++m) sum = sum + of_micro_batch(m);
      return sum;
    };
    expected.push_back(each_micro_batch
                           ? over_micro_batches([&](int m) { return over_ranks([&](int rank) { return part(rank, m); }); })
                           : over_ranks([&](int rank) { return over_micro_batches([&](int m) { return part(rank, m); }); }));
  }
  return expected;
}

ModelInfo odd_model() {
  ModelMaker maker;
  int last = maker.position("embed", {}, {maker.unit("embed", 1)});
  for (const int64_t numel : {255, 257, 1000, 2049}) {
    const std::string name = "layer" + std::to_string(numel);
    last = maker.position(name, {last}, {maker.unit(name, numel)});
  }
  return maker.info;
}

class ReductionOn : public testing::TestWithParam<int> {};

TEST_P(ReductionOn, HasEqualBitsAtBothStagesAndByTheDefinition) {
  const ModelInfo model = odd_model();
  for (const std::string every : {"step", "micro_batch"}) {
    for (const int micro_batches : {1, 2, 3}) {
      const auto expected = expected_gradients(model, GetParam(), micro_batches, every == "micro_batch");
      for (const int stage : {0, 1}) {
        for (const int64_t bucket_bytes : {0, 1100, 8 << 20}) {
          const RankProgram program = sharded(*shard(stage, bucket_bytes, every), model, micro_batches);
          spawn(GetParam(), [&](const World& world) {
            Rank rank = make_rank(world, model, program.units);
            for (int step = 0; step < 2; ++step) run_step(program, model, rank);  // the second step must not depend on the first
            for (const Unit& unit : rank.state.units) {
              const int64_t begin = unit.layout.begin(unit.rank), end = unit.layout.end(unit.rank);
              const at::Tensor mine = unit.grad_shard.narrow(0, 0, end - begin);
              EXPECT_TRUE(at::equal(mine, expected[unit.index].narrow(0, begin, end - begin)))
                  << "stage " << stage << ", " << micro_batches << " micro-batches reduced every " << every << ", unit "
                  << unit.index;
            }
          });
        }
      }
    }
  }
}

TEST_P(ReductionOn, IsFollowedByAGatherOfTheMasters) {
  const ModelInfo model = odd_model();
  const RankProgram program = sharded(*shard(1, 5000), model, 1);
  spawn(GetParam(), [&](const World& world) {
    Rank rank = make_rank(world, model, program.units);
    for (Unit& unit : rank.state.units) {
      unit.full.fill_(-1);
      unit.master.fill_(100 * unit.index + rank.comm->rank());
    }
    std::vector<Work> works;
    for (const Action& action : program.actions) {
      if (action.kind == Kinds::get().unshard) works.push_back(rank.handlers.at(action.kind)->start(action, rank.state));
    }
    for (const Work& work : works) work.wait();
    for (const Unit& unit : rank.state.units) {
      const at::Tensor owners = at::arange(rank.comm->size(), at::kFloat).repeat_interleave(unit.layout.chunk);
      EXPECT_TRUE(at::equal(unit.full, owners + 100 * unit.index));
    }
  });
}

// Checks the test itself: the comparison above can see another order of summation.
TEST(Reduction, DependsOnItsOrder) {
  const ModelInfo model = odd_model();
  const auto by_step = expected_gradients(model, 3, 2, false), by_micro_batch = expected_gradients(model, 3, 2, true);
  EXPECT_FALSE(at::equal(by_step.back(), by_micro_batch.back()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ReductionOn, testing::Values(1, 2, 3, 4));

TEST(Handlers, GatherWhatAMorePreciseMasterWasRoundedTo) {
  spawn(2, [](const World& world) {
    Rank rank = make_rank(world, chain(0), std::vector<UnitPlan>(2, plan_of_stage(1)));
    Unit& unit = rank.state.units[1];
    unit.full = at::zeros({unit.layout.padded()}, at::kBFloat16);
    unit.shard = unit.full.narrow(0, unit.rank * unit.layout.chunk, unit.layout.chunk);
    unit.master = at::full({unit.layout.chunk}, 1.0F + 0.001F * static_cast<float>(rank.comm->rank() + 1));
    unit.has_own_master = true;
    unit.round_master();
    rank.handlers.at(Kinds::get().unshard)->start(parse_action("UNSHARD 1 axes=[\"dp\"]"), rank.state).wait();
    for (int owner = 0; owner < 2; ++owner) {
      const at::Tensor part = unit.full.narrow(0, owner * unit.layout.chunk, unit.layout.chunk);
      const at::Tensor master = at::full({unit.layout.chunk}, 1.0F + 0.001F * static_cast<float>(owner + 1));
      EXPECT_TRUE(at::equal(part, master.to(at::kBFloat16)));
    }
  });
}

TEST(Handlers, AddAPartOnceHoweverOftenItIsWaitedFor) {
  spawn(2, [](const World& world) {
    Rank rank = make_rank(world, chain(0), std::vector<UnitPlan>(2));
    Unit& unit = rank.state.units[0];
    ActionHandler& reduce = *rank.handlers.at(Kinds::get().reduce_grad);
    for (const char* part : {"first", "middle", "last"}) {
      unit.grad.fill_(1);
      const Work work = reduce.start(parse_action(fmt::format("REDUCE_GRAD 0 axes=[\"dp\"] sum={}", part)), rank.state);
      work.wait();
      work.synchronize();
      work.wait();
      EXPECT_TRUE(work.done());
    }
    EXPECT_TRUE(at::equal(unit.grad, at::full_like(unit.grad, 6)));
  });
}

TEST(Handlers, RefuseUnitsThatAreCutOtherwise) {
  spawn(2, [](const World& world) {
    Rank rank = make_rank(world, chain(0), {plan_of_stage(0), plan_of_stage(1)});
    ActionHandler& reduce = *rank.handlers.at(Kinds::get().reduce_grad);
    EXPECT_THROW(reduce.start(parse_action("REDUCE_GRAD 0 axes=[\"dp\"] units=[1]"), rank.state), Misuse);
    rank.state.units[1].layout = FlatLayout(100, 3);
    EXPECT_THROW(reduce.start(parse_action("REDUCE_GRAD 1 axes=[\"dp\"]"), rank.state), Misuse);
  });
}

}  // namespace
}  // namespace zt::test
