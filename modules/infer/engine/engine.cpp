#include "engine/engine.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/base/machine.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"
#include "zt/model/layer_extras.h"

namespace zt {
ZT_DEFINE_OBJECT(infer::Engine, "Engine")
}  // namespace zt

namespace zt::infer {

namespace {

constexpr const char* kInvariantGemm = "dots";
constexpr const char* kVocabulary = "vocab";
constexpr int64_t kMostUnused = 1024;  // tokens of a model that its tokenizer does not have

// Returns the rows of the parameter that has one for each token; 0 if there is none.
int64_t vocabulary_of(const ModelInfo& model) {
  for (const ParamInfo& param : model.params) {
    if (!param.dims.empty() && param.dims[0] == kVocabulary) return param.shape[0];
  }
  return 0;
}

// Returns the option `seq` of the function that made the model; 0 if it has none.
int64_t trained_context(const Model& model) {
  const auto* options = model.options().get_if<Value::Table>();
  const auto found = options ? options->find("seq") : Value::Table::const_iterator();
  const auto* seq = options && found != options->end() ? found->second.get_if<int64_t>() : nullptr;
  return seq ? *seq : 0;
}

at::Tensor row_of(const std::vector<int64_t>& numbers) {
  return at::tensor(numbers, at::kLong).view({1, -1});
}

}  // namespace

Engine::Engine(EngineOptions options, const World& world) : options_(std::move(options)), replica_(*options_.trainer) {
  if (options_.max_context == 0) options_.max_context = trained_context(*options_.trainer->program().model());
  if (options_.max_context == 0)
    misuse(
        "infer.engine needs max_context, the most tokens of a prompt and its answer: the model does not say how many it takes");
  if (options_.token_budget < options_.max_sequences)
    misuse("infer.engine: token_budget = {} is below max_sequences = {}: each running sequence needs one token per step",
           options_.token_budget, options_.max_sequences);
  vocabulary_ = vocabulary_of(options_.trainer->program().info());
  check_model();
  check_longest();
  check_tokenizer();
  limits_ = {.rows = options_.token_budget,
             .sequences = options_.max_sequences,
             .block = options_.cache.block,
             .has_prefixes = options_.cache.prefix};
  reserve_cache(world);
}

void Engine::check_model() const {
  const Program& program = options_.trainer->program();
  for (const NamedLayer& named : program.model()->positions()) {
    if (named.layer->token_scope() != TokenScope::all) continue;
    misuse(
        "infer.engine: layer '{}' ({}) may read several tokens at once, so keys and values cannot be kept: if it treats each token "
        "by itself give nn.layer{{tokens = \"separate\"}}, else use zt.generate",
        named.name, named.layer->kind());
  }
  const auto& outputs = program.info().positions.back().outputs;
  if (std::ranges::find(outputs, "logits", &Output::name) == outputs.end())
    misuse(
        "infer.engine: the model's last layer '{}' has no output 'logits': nn.lm_loss has one, and a layer in Lua names it by io = "
        "{{outputs = {{\"logits\"}}}}",
        program.info().positions.back().name);
  if (options_.numerics == Numerics::fast) return;
  if (!options_.trainer->state().links->device().is_cpu())
    misuse(
        "infer.engine: on {} the sums of matrix products depend on the number of rows, so an answer depends on the others: give "
        "numerics = \"fast\"",
        options_.trainer->state().links->device().str());
  if (!has_gemm(kInvariantGemm))
    misuse("infer.engine: numerics = \"invariant\" needs the GEMMs of the module gemm: require \"zt.gemm\", or give \"fast\"");
}

KvShapes Engine::kv_shapes() const {
  const Program& program = options_.trainer->program();
  const Coord coord = options_.trainer->state().links->place().coord;
  const std::vector<bool> runs = positions_run(program.build(Mode::generate, coord), program.info());
  KvShapes shapes;
  for (size_t position = 0; position < runs.size(); ++position) {
    const auto shape = program.model()->positions()[position].layer->kv_shape(coord);
    if (runs[position] && shape) shapes[static_cast<int>(position)] = *shape;
  }
  return shapes;
}

// As many blocks as all sequences at their longest could need, or as fit. Ranks of a replica have equally many.
void Engine::reserve_cache(const World& world) {
  const CacheOptions& cache = options_.cache;
  const at::ScalarType params = options_.trainer->program().precision().params;
  const KvShapes shapes = kv_shapes();
  const int64_t bytes = block_bytes(shapes, cache, params), of_one = blocks_of(options_.max_context, cache.block);
  const int64_t free = std::max<int64_t>(machine_memory().free, 0) / std::max(world.ranks_per_node, 1);
  const int64_t memory = static_cast<int64_t>(cache.memory <= 1 ? cache.memory * static_cast<double>(free) : cache.memory);
  if (cache.memory > 1 && free > 0 && memory > free)
    misuse(
        "infer.engine: the cache of {} does not fit, {} are free for this rank: lower cache.memory, or give cache.dtype = \"int8\"",
        human_bytes(memory), human_bytes(free));
  const int64_t most = of_one * options_.max_sequences;
  const int64_t blocks = replica_.least(bytes == 0 ? most : std::min(most, memory / bytes));
  if (blocks < of_one)
    misuse(
        "infer.engine: a sequence of max_context = {} tokens needs a cache of {}, and cache.memory = {} gives {}: raise cache.memory, "
        "lower max_context, or give cache.dtype = \"int8\"",
        options_.max_context, human_bytes(of_one * bytes), cache.memory, human_bytes(memory));
  store_ =
      std::make_unique<KvStore>(shapes, cache, params, static_cast<int32_t>(blocks), options_.trainer->state().links->device());
  books_ = std::make_unique<CacheBooks>(static_cast<int32_t>(blocks), cache.block);
  stats_.block_bytes = bytes;
}

namespace {

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

}  // namespace

// A model may have some more tokens than the tokenizer, so that their number is a multiple of something. They add no text.
void Engine::check_tokenizer() {
  if (!options_.tokenizer) return;
  const int64_t ids = options_.tokenizer->vocab();
  if (vocabulary_ > 0 && (ids > vocabulary_ || ids + kMostUnused <= vocabulary_))
    misuse("infer.engine: the tokenizer has {} ids and the model's vocabulary {}: they do not belong together", ids, vocabulary_);
  bytes_of_ = [tokenizer = options_.tokenizer, ids](int32_t token) {
    return token < ids ? tokenizer->bytes_of(token) : std::string();
  };
}

void Engine::check_longest() const {
  check_tokens(*options_.trainer->program().model(), fmt::format("infer.engine: max_context = {}", options_.max_context),
               at::zeros({1, options_.max_context}, at::kLong));
}

void Engine::check_fits(const Request& request) const {
  const int64_t prompt = std::ssize(request.prompt);
  if (prompt + request.max_tokens > options_.max_context)
    misuse("{}: {} tokens of prompt and max_tokens = {} exceed max_context = {}: shorten the prompt or lower max_tokens",
           request.path, prompt, request.max_tokens, options_.max_context);
  check_tokens(*options_.trainer->program().model(), request.path + ".prompt",
               row_of(std::vector<int64_t>(request.prompt.begin(), request.prompt.end())));
}

int64_t Engine::submit(const Value& table) {
  const std::string path = fmt::format("request {}", next_number_);
  const Value plain = plain_request(table, path);
  check_fits(parse_request(plain, path));
  if (replica_.is_first()) commands_.push_back({plain, next_number_});
  return next_number_++;
}

bool Engine::abort(int64_t number) {
  const bool is_live = std::ranges::any_of(live_, [&](const auto& answer) { return answer->number() == number; });
  const bool is_new = std::ranges::any_of(commands_, [&](const Command& command) { return command.number == number; });
  if (replica_.is_first() && (is_live || is_new)) commands_.push_back({{}, number});
  return is_live || is_new;
}

// All ranks do what the first one was told since the last step.
void Engine::take_commands(EngineStep& done) {
  Value::List mine;
  for (const Command& command : commands_) mine.push_back(Value::List{command.number, command.request});
  const Value given = replica_.from_first(mine);
  commands_.clear();
  const auto* list = given.get_if<Value::List>();
  if (!list) return;
  for (const Value& each : *list) {
    const Value::List& command = *each.get_if<Value::List>();
    const int64_t number = *command.at(0).get_if<int64_t>();
    if (command.at(1).is_nil()) {
      for (const auto& answer : live_) {
        if (answer->number() == number) answer->end(FinishReason::abort);
      }
      continue;
    }
    next_number_ = std::max(next_number_, number + 1);
    const auto request = std::make_shared<const Request>(parse_request(command.at(1), fmt::format("request {}", number)));
    for (int64_t copy = 0; copy < request->n; ++copy) {
      live_.push_back(
          std::make_unique<LiveAnswer>(number, copy, request, options_.stop_tokens, bytes_of_ ? &bytes_of_ : nullptr));
      if (options_.speculative) live_.back()->guesses.emplace(options_.speculative->match, options_.speculative->tokens);
    }
  }
  remove_done(done);
}

void Engine::forget_keys() {
  ++weights_;
}

void Engine::drop_old_keys() {
  if (version_ == weights_version()) return;
  version_ = weights_version();
  for (const auto& answer : live_) {
    give_back(answer->sequence, *books_);
    answer->sequence.root.weights = version_;
  }
  books_->tree.keep_only(version_);
}

// The other answers of a request begin when the first one has computed the prompt: they take its blocks.
std::vector<AnswerPart> Engine::schedule_parts() {
  std::vector<TokenSequence*> sequences;
  std::vector<LiveAnswer*> answers;
  std::vector<std::vector<int32_t>> guesses;
  std::vector<bool> was_running;
  int64_t waits_for = -1;  // the request whose prompt is not computed yet
  for (const auto& answer : live_) {
    if (answer->copy() > 0 && answer->number() == waits_for) continue;
    TokenSequence& sequence = answer->sequence;
    sequence.root.weights = version_;
    was_running.push_back(sequence.is_running);
    if (options_.cache.prefix && answer->copy() == 0 && answer->request().n > 1 && answer->length() == 0)
      waits_for = answer->number();
    guesses.emplace_back(answer->guesses && answer->length() > 0 ? answer->guess(*answer->guesses) : std::vector<int32_t>());
    sequence.drafts = std::ssize(guesses.back());
    sequences.push_back(&sequence);
    answers.push_back(answer.get());
  }
  const StepPlan plan = schedule(sequences, limits_, *books_);
  stats_.put_back += std::ssize(plan.put_back);
  std::vector<AnswerPart> parts;
  for (const StepPart& part : plan.parts) {
    if (!was_running[part.sequence]) stats_.cached_tokens += answers[part.sequence]->note_begin();
    std::vector<int32_t>& guessed = guesses[part.sequence];
    guessed.resize(static_cast<size_t>(part.drafts));
    AnswerPart& to = parts.emplace_back(AnswerPart{answers[part.sequence], part.rows, std::move(guessed), 0});
    if (to.answer->sequence.needs_all_logits) to.logits = part.rows;
    else if (to.draws()) to.logits = part.drafts + 1;
  }
  return parts;
}

// Cuts the parts into micro-batches with about as many rows each.
Engine::PlannedStep Engine::plan_step(std::vector<AnswerPart> parts) const {
  const int count = options_.trainer->program().micro_batches(Mode::generate);
  int64_t left = 0;
  for (const AnswerPart& part : parts) left += part.rows;
  PlannedStep planned{.parts = std::move(parts),
                      .micro_batches = {},
                      .sequences = std::vector<std::vector<KvSequence>>(static_cast<size_t>(count))};
  size_t next = 0;
  for (int m = 0; m < count; ++m) {
    const int64_t share = (left + count - m - 1) / (count - m);
    std::vector<int64_t> tokens, positions, logits_of;
    for (; next < planned.parts.size() && (std::ssize(tokens) < share || m + 1 == count); ++next) {
      const AnswerPart& part = planned.parts[next];
      const TokenSequence& sequence = part.answer->sequence;
      const int64_t first = std::ssize(tokens), known = part.rows - std::ssize(part.guesses);
      planned.sequences[static_cast<size_t>(m)].push_back({first, part.rows, sequence.computed, sequence.blocks});
      for (int64_t i = 0; i < known; ++i) tokens.push_back(sequence.tokens[static_cast<size_t>(sequence.computed + i)]);
      tokens.insert(tokens.end(), part.guesses.begin(), part.guesses.end());
      for (int64_t i = 0; i < part.rows; ++i) positions.push_back(sequence.computed + i);
      for (int64_t i = part.rows - part.logits; i < part.rows; ++i) logits_of.push_back(first + i);
    }
    left -= std::ssize(tokens);
    planned.micro_batches.push_back(
        {{"tokens", row_of(tokens)}, {"positions", row_of(positions)}, {"logits_of", row_of(logits_of)}});
  }
  return planned;
}

std::vector<DrawnTokens> Engine::run(const PlannedStep& planned) {
  const int64_t begin = now_ns();
  store_->set_sequences(planned.sequences);
  std::optional<GemmScope> scope;
  if (options_.numerics == Numerics::invariant) scope.emplace(kInvariantGemm);
  std::vector<DrawnTokens> drawn;
  const bool travels = !options_.trainer->state().links->place().split_axes.empty();
  int64_t drawing = 0;
  const auto reduce = [&](const std::map<std::string, at::Tensor>& outputs) {
    const int64_t since = now_ns();
    const auto logits = outputs.find("logits");
    if (logits == outputs.end() || logits->second.dim() != 3)
      misuse("infer.engine: the model's output 'logits' must be [1, rows, vocabulary], got {}",
             logits == outputs.end() ? "none" : describe(logits->second));
    drawn = draw(planned.parts, logits->second[0]);
    drawing = now_ns() - since;
    return travels ? to_value(drawn) : Value();
  };
  const Value value = options_.trainer->infer(planned.micro_batches, reduce, store_.get());
  if (travels) drawn = drawn_of(value);
  stats_.layer_seconds += static_cast<double>(now_ns() - begin - drawing) * 1e-9;
  return drawn;
}

void Engine::finish(const PlannedStep& planned, const std::vector<DrawnTokens>& drawn, EngineStep& done) {
  for (size_t i = 0; i < planned.parts.size(); ++i) {
    const AnswerPart& part = planned.parts[i];
    LiveAnswer& answer = *part.answer;
    const int64_t guesses = std::ssize(part.guesses), kept = std::max<int64_t>(std::ssize(drawn[i].tokens) - 1, 0);
    const int64_t known = part.rows - guesses;
    if (answer.length() == 0) stats_.prompt_tokens += known;
    stats_.new_tokens += std::ssize(drawn[i].tokens);
    stats_.guessed_tokens += guesses;
    stats_.kept_guesses += kept;
    const std::string text = answer.add(drawn[i]);
    if (!text.empty()) done.texts.push_back({answer.number(), answer.copy(), text});
    if (!answer.is_done()) note_computed(answer.sequence, known + kept, limits_, *books_);
  }
}

void Engine::remove_done(EngineStep& done) {
  for (auto& answer : live_) {
    if (!answer->is_done()) continue;
    give_back(answer->sequence, *books_);
    done.answers.push_back(answer->take());
    answer.reset();
  }
  std::erase(live_, nullptr);
}

EngineStep Engine::step() {
  const int64_t begin = now_ns();
  EngineStep done;
  take_commands(done);
  if (!replica_.any(!live_.empty())) {
    done.has_run = !done.answers.empty();
    return done;
  }
  drop_old_keys();
  const PlannedStep planned = plan_step(schedule_parts());
  const std::vector<DrawnTokens> drawn = run(planned);
  finish(planned, drawn, done);
  remove_done(done);
  done.has_run = true;
  ++stats_.steps;
  stats_.seconds += static_cast<double>(now_ns() - begin) * 1e-9;
  return done;
}

EngineStats Engine::stats() const {
  EngineStats now = stats_;
  for (const auto& answer : live_) ++(answer->sequence.is_running ? now.running : now.waiting);
  now.blocks = books_->blocks.count();
  now.free_blocks = books_->blocks.free();
  now.cache_bytes = store_->bytes();
  return now;
}

}  // namespace zt::infer
