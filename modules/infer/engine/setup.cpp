#include "engine/setup.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "schedule/schedule.h"
#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm.h"
#include "zt/model/layer_extras.h"

namespace zt::infer {

namespace {

constexpr const char* kVocabulary = "vocab";
constexpr int64_t kMostUnused = 1024;  // tokens of a model that its tokenizer does not have

// Returns the option `seq` of the function that made the model; 0 if it has none.
int64_t trained_context(const Model& model) {
  const auto* options = model.options().get_if<Value::Table>();
  if (!options || !options->contains("seq")) return 0;
  const auto* seq = options->at("seq").get_if<int64_t>();
  return seq ? *seq : 0;
}

void check_numerics(const EngineOptions& options) {
  if (options.numerics == Numerics::fast) return;
  const at::Device device = options.trainer->state().links->device();
  if (!device.is_cpu())
    misuse(
        "infer.engine: on {} the sums of matrix products depend on the number of rows, so an answer depends on the others: give "
        "numerics = \"fast\"",
        device.str());
  if (!has_gemm(kInvariantGemm))
    misuse("infer.engine: numerics = \"invariant\" needs the GEMMs of the module gemm: require \"zt.gemm\", or give \"fast\"");
}

// A model may have some more tokens than the tokenizer, so that their number is a multiple of something.
void check_tokenizer(const Tokenizer& tokenizer, int64_t vocabulary) {
  const int64_t ids = tokenizer.vocab();
  if (vocabulary > 0 && (ids > vocabulary || ids + kMostUnused <= vocabulary))
    misuse("infer.engine: the tokenizer has {} ids and the model's vocabulary {}: they do not belong together", ids, vocabulary);
}

// Throws Misuse, with `where`, if a layer cannot take a sequence of these tokens.
void check_tokens(const Model& model, const std::string& where, const at::Tensor& tokens) {
  const at::Tensor positions = at::arange(tokens.size(1), at::kLong).view({1, -1});
  const auto field = [&](const std::string& name) {
    return name == "tokens" ? tokens : name == "positions" ? positions : at::Tensor();
  };
  for (const NamedLayer& named : model.positions())
    with_context([&] { return fmt::format("{}: layer '{}'", where, named.name); },
                 [&] { extras_of(*named.layer).check_batch(field, Mode::generate); });
}

KvShapes kv_shapes(const Program& program, const Coord& coord) {
  const std::vector<bool> runs = positions_run(program.build(Mode::generate, coord), program.info());
  KvShapes shapes;
  for (size_t position = 0; position < runs.size(); ++position) {
    const auto shape = program.model()->positions()[position].layer->kv_shape(coord);
    if (runs[position] && shape) shapes[static_cast<int>(position)] = *shape;
  }
  return shapes;
}

}  // namespace

std::string logits_output(const ModelInfo& model) {
  for (const char* name : {"logits", "logprobs"}) {
    if (std::ranges::find(model.positions.back().outputs, name, &Output::name) != model.positions.back().outputs.end())
      return name;
  }
  return "";
}

std::string cannot_keep_keys(const Program& program) {
  for (const NamedLayer& named : program.model()->positions()) {
    if (named.layer->token_scope() != TokenScope::all) continue;
    return fmt::format(
        "layer '{}' ({}) may read several tokens at once, so keys and values cannot be kept: if it treats each token by itself give "
        "nn.layer{{tokens = \"separate\"}}, else use zt.generate",
        named.name, named.layer->kind());
  }
  if (!logits_output(program.info()).empty()) return "";
  return fmt::format(
      "the model's last layer '{}' has no output 'logits': nn.lm_loss has one, and a layer in Lua names it by io = {{outputs = "
      "{{\"logits\"}}}}",
      program.info().positions.back().name);
}

int64_t vocabulary_of(const ModelInfo& model) {
  for (const ParamInfo& param : model.params) {
    if (!param.dims.empty() && param.dims[0] == kVocabulary) return param.shape[0];
  }
  return 0;
}

namespace {

void check_stop_tokens(const std::vector<int32_t>& tokens, int64_t vocabulary, const std::string& path) {
  for (const int32_t token : tokens) {
    if (token < 0 || (vocabulary > 0 && token >= vocabulary))
      misuse("{}.stop_tokens names the token {}, but the model has {} tokens, counted from 0", path, token, vocabulary);
  }
}

}  // namespace

std::optional<TokenShare> token_share(const Program& program) {
  const Layer& head = *program.model()->positions().back().layer;
  const std::string axis = extras_of(head).class_axis();
  if (axis.empty() || program.coord().size(axis) == 1) return {};
  const Coord coord = program.coord();
  for (const auto& param : head.params()) {
    const auto cut = std::ranges::find(param->placements, axis, &AxisPlacement::axis);
    if (cut == param->placements.end() || cut->placement != Placement::sharded) continue;
    const int64_t classes = param->shape[0];
    const Share own = share_of(classes, coord.size(axis), coord[axis]);
    const auto gather = [control = program.mesh()->axis(axis)->control](const at::Tensor& mine) {
      std::vector<int64_t> sizes{control->size()};
      sizes.insert(sizes.end(), mine.sizes().begin(), mine.sizes().end());
      const at::Tensor all = at::empty(sizes, mine.options());
      control->all_gather(all, mine).synchronize();
      return all;
    };
    return TokenShare{own.begin, own.count, classes, coord[axis], axis, gather};
  }
  return {};
}

EngineOptions checked_options(EngineOptions options) {
  const Program& program = options.trainer->program();
  if (options.max_context == 0) options.max_context = trained_context(*program.model());
  if (options.max_context == 0)
    misuse(
        "infer.engine needs max_context, the most tokens of a prompt and its answer: the model does not say how many it takes");
  if (options.token_budget < options.max_sequences)
    misuse("infer.engine: token_budget = {} is below max_sequences = {}: each running sequence needs one token per step",
           options.token_budget, options.max_sequences);
  if (const std::string reason = cannot_keep_keys(program); !reason.empty()) misuse("infer.engine: {}", reason);
  check_numerics(options);
  check_tokens(*program.model(), fmt::format("infer.engine: max_context = {}", options.max_context),
               at::zeros({1, options.max_context}, at::kLong));
  check_stop_tokens(options.stop_tokens, vocabulary_of(program.info()), "infer.engine");
  if (options.tokenizer) check_tokenizer(*options.tokenizer, vocabulary_of(program.info()));
  return options;
}

namespace {

// The bytes that a rank may use, and that are free for it; -1: not known.
struct CacheMemory {
  int64_t bytes, free;
};

CacheMemory cache_memory(double memory, at::Device device, const World& world) {
  if (!device.is_cpu()) {
    if (memory <= 1)
      misuse("infer.engine: it is not known how much memory is free on {}: give cache.memory in bytes", device.str());
    return {static_cast<int64_t>(memory), -1};
  }
  const int64_t free = machine_memory().free, own = free < 0 ? -1 : free / std::max(world.ranks_per_node, 1);
  if (memory <= 1 && own < 0) misuse("infer.engine: it is not known how much memory is free here: give cache.memory in bytes");
  return {static_cast<int64_t>(memory <= 1 ? memory * static_cast<double>(own) : memory), own};
}

}  // namespace

namespace {

// Returns the blocks that a sequence of max_context tokens needs.
int64_t blocks_of_one(const EngineOptions& options) {
  return blocks_of(options.max_context, options.cache.block);
}

// Returns the blocks for which `bytes` have room, and no more than all sequences at their longest need.
int64_t blocks_within(const EngineOptions& options, int64_t bytes, int64_t bytes_of_block) {
  const int64_t most = blocks_of_one(options) * options.max_sequences;
  return bytes_of_block == 0 ? most : std::min(most, bytes / bytes_of_block);
}

void check_room(const EngineOptions& options, int64_t blocks, int64_t bytes, int64_t bytes_of_block) {
  if (blocks >= blocks_of_one(options)) return;
  misuse(
      "infer.engine: a sequence of max_context = {} tokens needs a cache of {}, and cache.memory = {} gives {}: raise "
      "cache.memory, lower max_context, or give cache.dtype = \"int8\"",
      options.max_context, human_bytes(blocks_of_one(options) * bytes_of_block), options.cache.memory, human_bytes(bytes));
}

}  // namespace

std::unique_ptr<KvStore> make_store(const EngineOptions& options, const Replica& replica, const World& world) {
  const CacheOptions& cache = options.cache;
  const Program& program = options.trainer->program();
  const auto& links = *options.trainer->state().links;
  const KvShapes shapes = kv_shapes(program, links.place().coord);
  const int64_t bytes = block_bytes(shapes, cache, program.precision().params);
  const CacheMemory memory = cache_memory(cache.memory, links.device(), world);
  const int64_t blocks = replica.least(blocks_within(options, memory.bytes, bytes));
  if (memory.free >= 0 && blocks * bytes > memory.free)
    misuse(
        "infer.engine: the cache of {} does not fit, {} are free for this rank: lower cache.memory, or give cache.dtype = \"int8\"",
        human_bytes(blocks * bytes), human_bytes(memory.free));
  check_room(options, blocks, memory.bytes, bytes);
  return std::make_unique<KvStore>(shapes, cache, program.precision().params, static_cast<int32_t>(blocks), links.device());
}

CacheBytes planned_cache(const EngineOptions& options, const World& world) {
  const Program& program = options.trainer->program();
  const auto bytes_of = [shared = options.trainer, cache = options.cache](const Coord& coord) {
    return block_bytes(kv_shapes(shared->program(), coord), cache, shared->program().precision().params);
  };
  CacheMemory memory = cache_memory(options.cache.memory, options.trainer->state().links->device(), world);
  if (options.cache.memory <= 1) {
    for (const MemoryLine& line : options.trainer->memory()) {
      if (line.kind == "parameters")
        memory.bytes -= static_cast<int64_t>(options.cache.memory * static_cast<double>(line.predicted));
    }
    if (memory.bytes < 0)
      misuse(
          "infer.engine: this machine has not enough free memory for the parameters of each rank, so cache.memory = {}, a share of "
          "what is left, leaves nothing: to plan for another machine, give cache.memory in bytes",
          options.cache.memory);
  }
  int64_t blocks = std::numeric_limits<int64_t>::max();
  const MeshShape shape = program.coord().shape;
  for (int rank = 0; rank < shape.world_size(); ++rank) {
    const int64_t bytes = bytes_of({shape, rank}), of_rank = blocks_within(options, memory.bytes, bytes);
    check_room(options, of_rank, memory.bytes, bytes);
    blocks = std::min(blocks, of_rank);
  }
  return [blocks, bytes_of](const Coord& coord) { return blocks * bytes_of(coord); };
}

void check_fits(const Request& request, const EngineOptions& options) {
  const int64_t prompt = std::ssize(request.prompt);
  if (prompt + request.max_tokens > options.max_context)
    misuse("{}: {} tokens of prompt and max_tokens = {} exceed max_context = {}: shorten the prompt or lower max_tokens",
           request.path, prompt, request.max_tokens, options.max_context);
  const int64_t vocabulary = vocabulary_of(options.trainer->program().info());
  if (request.stop_tokens) check_stop_tokens(*request.stop_tokens, vocabulary, request.path);
  if (!request.stop.empty() && !options.tokenizer)
    misuse("{}.stop has texts, and the engine has no tokenizer, so answers have none: give stop_tokens", request.path);
  for (const auto& [token, bias] : request.logit_bias) {
    if (vocabulary > 0 && token >= vocabulary)
      misuse("{}.logit_bias has token {}, and the vocabulary has {} tokens", request.path, token, vocabulary);
  }
  const std::vector<int64_t> tokens(request.prompt.begin(), request.prompt.end());
  check_tokens(*options.trainer->program().model(), request.path + ".prompt", at::tensor(tokens, at::kLong).view({1, -1}));
}

}  // namespace zt::infer
