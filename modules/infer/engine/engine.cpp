#include "engine/engine.h"

#include <algorithm>

#include "engine/setup.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/gemm/gemm_choice.h"

namespace zt {
ZT_DEFINE_OBJECT(infer::Engine, "Engine")
}  // namespace zt

namespace zt::infer {

constexpr auto kOldParameters =
    "the parameters have changed while the answer was made: take the answers of all requests before a training step, a load or an "
    "update";

Engine::Engine(EngineOptions options, const World& world)
    : options_(std::move(options)),
      world_(world),
      replica_(world.dry ? Replica() : Replica(*options_.trainer)),
      limits_{.rows = options_.token_budget,
              .sequences = options_.max_sequences,
              .block = options_.cache.block,
              .has_prefixes = options_.cache.prefix},
      vocabulary_(vocabulary_of(options_.trainer->program().info())) {
  if (world.dry) return;
  store_ = make_store(options_, replica_, world);
  share_ = token_share(options_.trainer->program());
  logits_ = logits_output(options_.trainer->program().info());
  if (share_) store_->set_class_axis(share_->axis);
  books_ = std::make_unique<CacheBooks>(store_->blocks(), options_.cache.block);
  if (!options_.tokenizer) return;
  bytes_of_ = [tokenizer = options_.tokenizer, ids = options_.tokenizer->vocab()](int32_t token) {
    return token < ids ? tokenizer->bytes_of(token) : std::string();
  };
}

std::vector<Batch> Engine::describe_step() const {
  Trainer& trainer = *options_.trainer;
  if (trainer.trains())
    misuse(
        "infer.engine: its trainer is dry, as in a plan, and has an optimizer: the plan is that of the first training step; guard "
        "other calls by `if not zt.world.dry`");
  trainer.describe_inference(planned_cache(options_, world_));
  return widest_step(options_, trainer.program().micro_batches(Mode::generate));
}

Value Engine::checked(const Value& table, const std::string& path) const {
  Value plain = plain_request(table, path, options_.max_context);
  check_fits(parse_request(plain, path), options_);
  return plain;
}

int64_t Engine::submit(const Value& table, const std::string& given_path) {
  const std::string path = given_path.empty() ? fmt::format("request {}", next_number_) : given_path;
  const Value plain = checked(table, path);
  if (replica_.is_first()) commands_.push_back({plain, next_number_, path});
  return next_number_++;
}

bool Engine::abort(int64_t number) {
  const bool is_live = std::ranges::any_of(live_, [&](const auto& answer) { return answer->number() == number; });
  const bool is_new = std::ranges::any_of(commands_, [&](const Command& command) { return command.number == number; });
  if (replica_.is_first() && (is_live || is_new)) commands_.push_back({{}, number});
  return is_live || is_new;
}

// All ranks do what the first one was told since the last step.
void Engine::take_commands() {
  Value::List mine;
  for (const Command& command : commands_) mine.push_back(Value::List{command.number, command.request, command.path});
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
    const auto request = std::make_shared<const Request>(parse_request(command.at(1), *command.at(2).get_if<std::string>()));
    for (int64_t copy = 0; copy < request->n; ++copy) {
      live_.push_back(
          std::make_unique<LiveAnswer>(number, copy, request, options_.stop_tokens, bytes_of_ ? &bytes_of_ : nullptr));
      if (options_.speculative) live_.back()->guesses.emplace(options_.speculative->match, options_.speculative->tokens);
    }
  }
  remove_done();
}

// Answers whose first tokens are those of other parameters end: they are of no model.
void Engine::drop_old_keys() {
  const StepState& state = options_.trainer->state();
  const std::tuple now(state.step, state.replacements, state.adapters);
  if (std::exchange(seen_, now) == now) return;
  ++weights_;
  for (const auto& answer : live_) {
    give_back(answer->sequence, *books_);
    if (answer->length() > 0) answer->end(FinishReason::error, kOldParameters);
    answer->forget_prompt();
  }
  books_->tree.keep_only(weights_);
  remove_done();
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
    sequence.root.weights = weights_;
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
    const auto logits = outputs.find(logits_);
    if (logits == outputs.end() || logits->second.dim() != 3)
      misuse("infer.engine: the model's output '{}' must be [1, rows, vocabulary], got {}", logits_,
             logits == outputs.end() ? "none" : describe(logits->second));
    drawn = draw(planned.parts, logits->second[0], share_ ? &*share_ : nullptr);
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
    // An answer may end before the last guess that was kept.
    note_computed(answer.sequence, std::min(known + kept, answer.sequence.left()), limits_, *books_);
  }
}

void Engine::remove_done() {
  for (auto& answer : live_) {
    if (!answer->is_done()) continue;
    give_back(answer->sequence, *books_);
    done_.push_back(answer->take());
    answer.reset();
  }
  std::erase(live_, nullptr);
}

EngineStep Engine::step() {
  const int64_t begin = now_ns();
  EngineStep done;
  take_commands();
  if (replica_.any(!live_.empty())) {
    drop_old_keys();
    const PlannedStep planned = plan_step(schedule_parts(), options_.trainer->program().micro_batches(Mode::generate));
    const std::vector<DrawnTokens> drawn = run(planned);
    finish(planned, drawn, done);
    remove_done();
    done.has_run = true;
    ++stats_.steps;
    stats_.seconds += static_cast<double>(now_ns() - begin) * 1e-9;
  }
  done.answers = std::exchange(done_, {});
  done.has_run = done.has_run || !done.answers.empty();
  return done;
}

EngineStats Engine::stats() const {
  EngineStats now = stats_;
  for (const auto& answer : live_) ++(answer->sequence.is_running ? now.running : now.waiting);
  now.blocks = books_->blocks.count();
  now.free_blocks = books_->blocks.free();
  now.prefix_blocks = books_->tree.size();
  now.cache_bytes = store_->bytes();
  return now;
}

}  // namespace zt::infer
