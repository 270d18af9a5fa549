#include "compress/compress.h"

#include "compress/reduction.h"
#include "zt/base/error.h"
#include "zt/base/options.h"

namespace zt::zero {

namespace {

std::shared_ptr<Compressor> make_compressor(const CompressOptions& options) {
  if (options.kind == Compression::powersgd) return make_powersgd(options.rank, static_cast<uint64_t>(options.seed));
  return options.kind == Compression::int8 ? make_int8() : make_onebit();
}

// Throws Misuse unless the action is the only one of its unit, and follows NORM and so all reductions.
void check_keep(const Action& action, const RankProgram& program) {
  AttributeRule{{}, true}(action, program);
  bool is_after_norm = false;
  int count = 0;
  for (const Action& other : program.actions) {
    if (other.kind == Kinds::get().norm) is_after_norm = true;
    if (other.kind != action.kind || other.target != action.target) continue;
    ++count;
    if (!is_after_norm) misuse("it comes before NORM, which finds out whether the step makes an update: put it after");
  }
  if (count > 1) misuse("it is there {} times: what a unit has not sent is kept once", count);
}

// Runs when a step is complete.
KindId keep_unsent() {
  static const KindId id = register_kind(
      {.name = "KEEP_UNSENT",
       .target = Index::unit,
       .doc = "keeps what a compressor has not sent of the unit's gradient",
       .resources = [](const Action&, const ModelInfo&) { return Resources{.reads = {{resource::scalars}}, .writes = {}}; },
       .role = Role::update,
       .check = check_keep});
  return id;
}

class CompressPass final : public Pass {
 public:
  explicit CompressPass(const CompressOptions& options)
      : options_(options), compressor_(make_compressor(options)), handlers_(make_reduction(compressor_)) {}

  std::string name() const override { return "zero.compress"; }
  std::string summary() const override { return "zero.compress " + word_of(options_.kind); }
  Phase phase() const override { return Phase::reduction; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> replacements() const override {
    return {{Kinds::get().reduce_grad, handlers_.first}};
  }
  bool fixes_divisor() const override { return true; }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> handlers() const override {
    return {{keep_unsent(), handlers_.second}};
  }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().reduce_grad) compress(action, program, model, coord);
    }
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      if (!is_reduced(program.units[unit], model.units[unit])) continue;
      const auto index = static_cast<int32_t>(unit);
      add_buffers(program, model, index);
      if (program.mode == Mode::train)
        program.actions.push_back({.kind = keep_unsent(), .target = index, .attrs = {{"buffers", names_}}});
    }
    return program;
  }

 private:
  // Gradients of experts that are cut over all data axes are those of one rank: nothing is reduced.
  static bool is_reduced(const UnitPlan& plan, const UnitInfo& unit) {
    return plan.held && unit.trainable && !plan.comm_axes().empty();
  }

  void compress(Action& action, const RankProgram& program, const ModelInfo& model, const Coord& coord) const {
    if (action.attrs.contains("dtype"))
      misuse("zero.compress: gradients are to be sent in {}, and a compressor sends its own form: leave reduce_dtype out",
             action.attr("dtype"));
    const int ranks = coord.size(action.axes());
    Value::List names = names_;
    for (const std::string& other : action.buffers()) names.emplace_back(other);
    int64_t sent = 0;
    for (const int unit : action.units()) {
      const UnitPlan& plan = program.units.at(unit);
      const bool sums_all = plan.state == Residence::whole && plan.grads == Residence::whole;
      if (ranks > 1) sent += compressor_->sent_bytes(model, unit, ranks, sums_all, program.precision.master());
    }
    action.attrs["buffers"] = names;
    action.attrs["sent"] = sent;
  }

  void add_buffers(RankProgram& program, const ModelInfo& model, int32_t unit) const {
    const auto add = [&](const Staged& staged, BufferResidence residence, at::ScalarType dtype, int64_t elements) {
      for (const bool is_kept : {true, false})
        program.buffers.push_back({.type = is_kept ? staged.kept : staged.next,
                                   .index = unit,
                                   .residence = residence,
                                   .dtype = dtype,
                                   .is_saved = is_kept,
                                   .shape = {elements}});
    };
    add(residual_buffer(), BufferResidence::own, program.precision.master(), residual_elements(model.units[unit]));
    for (const Staged& staged : compressor_->buffers())
      add(staged, BufferResidence::local, at::kFloat, compressor_->elements(model, unit));
    program.buffers.push_back({.type = divisor_type(), .index = unit, .dtype = at::kDouble, .shape = {1}});
  }

  static Value::List names_of_buffers(const Compressor& compressor) {
    std::vector<ResourceId> types{residual_buffer().kept, residual_buffer().next, divisor_type()};
    for (const Staged& staged : compressor.buffers()) types.insert(types.end(), {staged.kept, staged.next});
    Value::List names;
    for (const ResourceId type : types) names.emplace_back(type_of(type).name);
    return names;
  }

  CompressOptions options_;
  std::shared_ptr<Compressor> compressor_;
  std::pair<std::shared_ptr<ActionHandler>, std::shared_ptr<ActionHandler>> handlers_;
  Value::List names_ = names_of_buffers(*compressor_);
};

}  // namespace

CompressOptions parse_compress_options(const Value& options) {
  static const auto schema =
      Schema<CompressOptions>("zero.compress")
          .required("kind", &CompressOptions::kind, "powersgd, int8 or onebit")
          .optional("rank", &CompressOptions::rank, "of powersgd: columns of the thin matrices", Check<int>(at_least(1)))
          .only_with("with kind = \"powersgd\"", [](const CompressOptions& o) { return o.kind == Compression::powersgd; })
          .optional("seed", &CompressOptions::seed, "of powersgd: of the first thin matrices", Check<int64_t>(at_least(0)))
          .only_with("with kind = \"powersgd\"", [](const CompressOptions& o) { return o.kind == Compression::powersgd; });
  return schema.parse(options);
}

std::shared_ptr<Pass> make_compress(const CompressOptions& options) {
  return std::make_shared<CompressPass>(options);
}

}  // namespace zt::zero
