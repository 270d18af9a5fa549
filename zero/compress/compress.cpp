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

class CompressPass final : public Pass {
 public:
  explicit CompressPass(const CompressOptions& options)
      : options_(options), compressor_(make_compressor(options)), handler_(make_reduction(compressor_)) {}

  std::string name() const override { return "zero.compress"; }
  std::string summary() const override { return "zero.compress " + word_of(options_.kind); }
  Phase phase() const override { return Phase::reduction; }
  std::optional<std::vector<std::string>> differs_along() const override { return std::vector<std::string>{}; }
  std::vector<std::pair<KindId, std::shared_ptr<ActionHandler>>> replacements() const override {
    return {{Kinds::get().reduce_grad, handler_}};
  }

  RankProgram apply(RankProgram program, const ModelInfo& model, const Coord& coord) const override {
    for (Action& action : program.actions) {
      if (action.kind == Kinds::get().reduce_grad) compress(action, program, model, coord);
    }
    for (size_t unit = 0; unit < model.units.size(); ++unit) {
      if (!program.units[unit].held || !model.units[unit].trainable) continue;
      const auto index = static_cast<int32_t>(unit);
      program.buffers.push_back({.type = residual_type(),
                                 .index = index,
                                 .spread = Spread::own,
                                 .dtype = program.precision.master(),
                                 .shape = {residual_elements(model.units[unit])}});
      program.buffers.push_back({.type = divisor_type(), .index = index, .dtype = at::kDouble, .shape = {1}});
      for (PassBuffer& buffer : compressor_->buffers(model, index)) program.buffers.push_back(std::move(buffer));
    }
    return program;
  }

 private:
  void compress(Action& action, const RankProgram& program, const ModelInfo& model, const Coord& coord) const {
    if (action.attrs.contains("dtype"))
      misuse("zero.compress: gradients are to be sent in {}, and a compressor sends its own form: leave reduce_dtype out",
             action.attr("dtype"));
    const int ranks = coord.size(action.axes());
    std::vector<std::string> names = action.buffers();
    int64_t sent = 0;
    for (const int unit : action.units()) {
      const UnitPlan& plan = program.units.at(unit);
      if (plan.params == Residence::sharded)
        misuse("zero.compress: parameters are sharded (zero.shard at stage 3), and compressors are for stages 0 to 2");
      const bool sums_all = plan.state == Residence::whole && plan.grads == Residence::whole;
      if (ranks > 1) sent += compressor_->sent_bytes(model, unit, ranks, sums_all, program.precision.master());
      if (unit != action.target) continue;
      for (const ResourceId type : {residual_type(), divisor_type()}) names.push_back(type_of(type).name);
      for (const PassBuffer& buffer : compressor_->buffers(model, unit)) names.push_back(type_of(buffer.type).name);
    }
    action.attrs["buffers"] = Value::List(names.begin(), names.end());
    action.attrs["sent"] = sent;
  }

  CompressOptions options_;
  std::shared_ptr<Compressor> compressor_;
  std::shared_ptr<ActionHandler> handler_;
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
