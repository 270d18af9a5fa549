#include "move.h"

#include <algorithm>

#include "device/tiers.h"
#include "move/schedule.h"
#include "move/values.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/model/optimizer.h"
#include "zt/model/unit.h"
#include "zt/process/log.h"

namespace zt::offload {

namespace {

// By default: slices of each kind, and units whose parameters are in memory, which are larger.
constexpr int kSlices = 4, kUnits = 3;

// By Pool, the bytes of the longest thing that travels; 0 if none does.
using Longest = std::array<int64_t, kAllPools.size()>;

class MovePass final : public Pass {
 public:
  // `optimizer` is null where none is known, as in a program's text: then there are two tensors of optimizer state.
  explicit MovePass(MoveOptions options, std::shared_ptr<const Optimizer> optimizer = nullptr)
      : options_(std::move(options)),
        optimizer_(std::move(optimizer)),
        states_(optimizer_ ? std::ssize(optimizer_->state_names()) : 2) {}

  std::string name() const override { return "offload.move"; }
  std::string summary() const override {
    return fmt::format("offload.move optimizer {}, parameters {}, gradients {}, activations {}", word_of(options_.optimizer),
                       word_of(options_.parameters), word_of(options_.gradients), word_of(options_.activations));
  }
  Phase phase() const override { return Phase::movement; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }
  std::shared_ptr<Pass> for_optimizer(const std::shared_ptr<const Optimizer>& optimizer) const override {
    return std::make_shared<MovePass>(options_, optimizer);
  }
  std::shared_ptr<Homes> make_homes(const HomeNeeds& needs) const override {
    if (options_.has(Where::host) && needs.device.is_cpu()) note_host();
    const bool has_files = options_.has(Where::nvme), has_host = options_.has(Where::host) && !needs.device.is_cpu();
    return has_files || has_host ? make_tiers(options_, has_files, needs) : nullptr;
  }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    check_untouched(program, model);
    const Tier activations = tier_of(options_.activations, program);
    if (activations != Tier::device && program.mode == Mode::train)
      insert_value_moves(program, model,
                         {.tier = activations,
                          .stay = options_.activations_stay,
                          .least = options_.activation_bytes,
                          .first_slot = kMostSlots - kValueSlots});
    const auto stays = [&](UnitData data) { return tier_of(data, program) == Tier::device; };
    if (std::ranges::all_of(kAllData, stays)) return program;
    check_parameters(program);
    check_optimizer(model);
    const std::vector<int64_t> chunks = cut_units(program, model, coord);
    choose_homes(program, model, chunks);
    if (program.mode == Mode::train) {
      slice_steps(program);
      if (steps_on_host(program)) place_steps(program);
    }
    const std::vector<PoolUses> uses = all_uses(program, model);
    insert_moves(program, uses, places_of(program, uses, longest_of(program, model, chunks)));
    return program;
  }

 private:
  // Of a record: optimizer state, and master parameters that have memory of their own.
  int64_t state_bytes(const Precision& precision) const {
    return (states_ + (precision.is_mixed() ? 1 : 0)) * size_of(precision.master());
  }

  // The host's memory is the device's for ranks on the CPU.
  static Tier tier_of(Where where, const RankProgram& program) {
    if (where == Where::nvme) return Tier::file;
    return where == Where::host && program.is_on_device ? Tier::host : Tier::device;
  }
  // Gradients go to where updates work.
  Tier tier_of(UnitData data, const RankProgram& program) const {
    if (data == UnitData::state) return tier_of(options_.optimizer, program);
    if (data == UnitData::params) return tier_of(options_.parameters, program);
    const Tier given = tier_of(options_.gradients, program);
    return given == Tier::device && steps_on_host(program) ? Tier::host : given;
  }
  bool steps_on_host(const RankProgram& program) const {
    return program.is_on_device && options_.optimizer != Where::device && options_.step_on.value_or(StepOn::host) == StepOn::host;
  }

  void note_host() const {
    if (options_.world.rank == 0)
      log(LogLevel::info, options_.world,
          "offload.move: for ranks on the CPU, host and device are one memory: what is to lie in \"host\" stays where it is");
  }

  static void check_untouched(const RankProgram& program, const ModelInfo& model) {
    if (moves_values(program))
      misuse("offload.move: an earlier pass moves activations already: apply offload.move once, with all options");
    for (size_t unit = 0; unit < program.units.size(); ++unit) {
      const UnitPlan& plan = program.units[unit];
      if (std::ranges::any_of(kAllData, [&](UnitData data) { return plan.home(data).is_elsewhere(); }))
        misuse("offload.move: an earlier pass moves data of unit '{}' already: apply offload.move once, with all options",
               model.units[unit].name);
    }
  }

  void check_parameters(const RankProgram& program) const {
    if (tier_of(UnitData::params, program) == Tier::device) return;
    const auto is_held_sharded = [](const UnitPlan& plan) { return plan.params == Residence::sharded; };
    if (std::ranges::none_of(program.units, is_held_sharded))
      misuse(
          "offload.move: parameters = \"{}\" moves the shards of parameters that layers see only while they run: apply zero.shard{{stage "
          "= 3, node_shared = false}}, also on one rank (units below its persist_below stay whole)",
          word_of(options_.parameters));
  }

  void check_optimizer(const ModelInfo& model) const {
    for (const ParamInfo& param : model.params) {
      if (!optimizer_ || !param.trainable || optimizer_->scope(param) == Scope::element) continue;
      misuse(
          "offload.move: {} updates '{}' as a whole, but data that travel are updated in slices: take an optimizer that updates each "
          "element by itself, or leave the data in memory",
          optimizer_->kind(), param.name);
    }
  }

  // Cuts the units into slices, unless zero.shard has done so. Returns by unit the elements that the rank owns; 0 for units that
  // it does not hold.
  std::vector<int64_t> cut_units(RankProgram& program, const ModelInfo& model, const Coord& coord) const {
    std::vector<int64_t> chunks(program.units.size());
    for (size_t unit = 0; unit < chunks.size(); ++unit) {
      UnitPlan& plan = program.units[unit];
      if (!plan.held) continue;
      chunks[unit] = FlatLayout(model.units[unit].numel, coord.size(plan.shard_axes)).chunk;
      if (plan.slices > 1 && options_.slice)
        misuse("offload.move: slice is given, but zero.shard's sub_group_size cuts unit '{}' into {} slices: give one of them",
               model.units[unit].name, plan.slices);
      if (plan.slices == 1)
        plan.slices = static_cast<int>(slices_of_at_most(chunks[unit], options_.slice.value_or(kDefaultSlice)));
    }
    return chunks;
  }

  // Says where the data of each unit lie. In the order of updates, what there is still room for stays.
  void choose_homes(RankProgram& program, const ModelInfo& model, const std::vector<int64_t>& chunks) const {
    const Tier state = tier_of(UnitData::state, program), params = tier_of(UnitData::params, program),
               grads = tier_of(UnitData::grads, program);
    const int64_t of_state = state == Tier::device ? 0 : state_bytes(program.precision);
    const int64_t of_grads = grads == Tier::device ? 0 : size_of(program.precision.grads);
    const auto state_of = [&](size_t unit) { return model.units[unit].trainable ? of_state : 0; };
    const auto grads_of = [&](size_t unit) { return model.units[unit].trainable ? of_grads : 0; };
    const auto params_of = [&](size_t unit) {
      const bool moves = params != Tier::device && program.units[unit].params == Residence::sharded;
      return moves ? size_of(model.units[unit].element_type(program.precision.params)) : 0;
    };
    int64_t all = 0;
    for (size_t unit = 0; unit < chunks.size(); ++unit) all += chunks[unit] * (state_of(unit) + grads_of(unit) + params_of(unit));
    int64_t room = options_.memory.value_or(all - static_cast<int64_t>(options_.ratio.value_or(1) * static_cast<double>(all)));
    const auto stays = [&](int64_t bytes) {
      const bool has_room = bytes <= room;
      if (has_room) room -= bytes;
      return has_room;
    };
    for (size_t unit = 0; unit < chunks.size(); ++unit) {
      UnitPlan& plan = program.units[unit];
      if (chunks[unit] == 0) continue;
      if (params_of(unit) > 0 && !stays(chunks[unit] * params_of(unit))) plan.params_home.tier = params;
      if (grads_of(unit) > 0 && !stays(chunks[unit] * of_grads)) plan.grads_home.tier = grads;
      if (state_of(unit) == 0) continue;
      int staying = 0;
      while (staying < plan.slices && stays(slice_of(chunks[unit], staying, plan.slices).count * of_state)) ++staying;
      if (staying < plan.slices) plan.state_home = {state, staying};
    }
  }

  // Lets updates of slices whose state travels work in the host's memory.
  static void place_steps(RankProgram& program) {
    for (Action& action : program.actions) {
      if (action.kind != Kinds::get().step) continue;
      const Home& home = program.units[static_cast<size_t>(action.target)].state_home;
      if (home.is_elsewhere() && action.number("part", 0) >= home.stays) action.attrs["memory"] = word_of(Tier::host);
    }
  }

  // Without what lies in host memory and is used there.
  Longest longest_of(const RankProgram& program, const ModelInfo& model, const std::vector<int64_t>& chunks) const {
    const int64_t of_state = state_bytes(program.precision), of_grads = size_of(program.precision.grads);
    Longest longest{};
    const auto note = [&](Pool pool, int64_t bytes) {
      longest[static_cast<size_t>(pool)] = std::max(longest[static_cast<size_t>(pool)], bytes);
    };
    for (size_t unit = 0; unit < chunks.size(); ++unit) {
      const UnitPlan& plan = program.units[unit];
      const int64_t slice = in_whole_blocks(slice_of(chunks[unit], 0, plan.slices).count), all = in_whole_blocks(chunks[unit]);
      const int64_t of_params = size_of(model.units[unit].element_type(program.precision.params));
      const bool steps_on_device = !steps_on_host(program) || !plan.state_home.is_elsewhere() || plan.state_home.stays > 0;
      const auto moves = [&](UnitData data) {
        const Home& home = plan.home(data);
        return home.tier == Tier::file || (home.tier == Tier::host && (steps_on_device || program.mode != Mode::train));
      };
      if (moves(UnitData::state)) note(Pool::state, slice * of_state);
      if (moves(UnitData::grads)) note(Pool::grads, slice * of_grads);
      if (moves(UnitData::params)) note(Pool::params, slice * of_params);
      if (plan.grads_home.is_elsewhere()) note(Pool::sums, all * of_grads);
      if (plan.params_home.is_elsewhere()) note(Pool::units, all * of_params);
    }
    return longest;
  }

  // Returns how many things of each pool are in memory at the same time.
  PoolSizes places_of(const RankProgram& program, const std::vector<PoolUses>& uses, const Longest& longest) const {
    PoolSizes places{};
    for (const Pool pool : kAllPools) {
      const auto i = static_cast<size_t>(pool);
      const bool is_whole = pool == Pool::sums || pool == Pool::units;
      const auto [action, most] = uses[i].most();
      places[i] = std::max(is_whole ? kUnits : kSlices, most);
      if (most > kMostPlaces)
        misuse("offload.move: {} needs {} units at the same time, and there are places for {}: give smaller buckets",
               action_text(program.actions[static_cast<size_t>(action)]), most, kMostPlaces);
      if (!options_.staging || most == 0 || longest[i] == 0) continue;
      if (*options_.staging < most * longest[i])
        misuse(
            "offload.move: staging = {} bytes for each kind of data, but {} needs {} of up to {} at the same time: give at least {}{}",
            *options_.staging, action_text(program.actions[static_cast<size_t>(action)]),
            is_whole ? counted(most, "unit") : counted(most, "slice"), human_bytes(longest[i]), most * longest[i],
            is_whole ? ", or smaller buckets (bucket_bytes of zero.shard)" : ", or smaller slices");
      places[i] = static_cast<int>(std::min<int64_t>(*options_.staging / longest[i], kMostPlaces));
    }
    return places;
  }

  const MoveOptions options_;
  const std::shared_ptr<const Optimizer> optimizer_;
  const int64_t states_;  // tensors of optimizer state
};

}  // namespace

std::shared_ptr<Pass> make_move(MoveOptions options) {
  return std::make_shared<MovePass>(std::move(options));
}

}  // namespace zt::offload
