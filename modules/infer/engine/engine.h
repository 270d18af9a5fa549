// Answers many requests at once with a model: each step computes some tokens of each, and draws the next ones.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/draw.h"
#include "engine/kv_store.h"
#include "engine/replica.h"
#include "zt/base/object.h"
#include "zt/process/world.h"
#include "zt/text/tokenizer.h"
#include "zt/train/trainer.h"

namespace zt::infer {

enum class Numerics : uint8_t {
  invariant,  // the bits of an answer do not depend on what else is computed
  fast,       // matrices are multiplied as in training
};
constexpr auto words_of(Numerics) {
  return std::array{"invariant", "fast"};
}

// Guesses of the next tokens, by what the text so far said before.
struct SpeculativeOptions {
  int64_t tokens = 4;  // most guesses that a step checks
  int64_t match = 3;   // last tokens that must have come before
};

struct EngineOptions {
  std::shared_ptr<Trainer> trainer;
  int64_t max_context = 0;     // tokens of prompt and answer; 0: as many as the model was trained with
  int64_t token_budget = 512;  // tokens that a step computes
  int64_t max_sequences = 64;  // answers that a step works on
  CacheOptions cache;
  Numerics numerics = Numerics::invariant;
  std::optional<SpeculativeOptions> speculative = {};
  std::vector<int32_t> stop_tokens = {};      // of the model: they end an answer
  std::shared_ptr<Tokenizer> tokenizer = {};  // null: answers have no text
};

// What a step did.
struct EngineStep {
  bool has_run = false;  // false: no rank had anything to do
  std::vector<TextPiece> texts = {};
  std::vector<Answer> answers = {};  // that are complete now
};

struct EngineStats {
  int64_t steps = 0, prompt_tokens = 0, new_tokens = 0;  // computed; drawn
  int64_t cached_tokens = 0;                             // of prompts, whose keys and values were there
  int64_t put_back = 0;                                  // answers that gave their blocks to older ones, and were computed again
  int64_t guessed_tokens = 0, kept_guesses = 0;
  int64_t waiting = 0, running = 0;  // answers now
  int64_t blocks = 0, free_blocks = 0, block_bytes = 0,
          cache_bytes = 0;                // of this rank; blocks that only the prefix cache holds are free
  double seconds = 0, layer_seconds = 0;  // in steps; of these in Trainer::infer
};

// Requires a causal model whose layers treat tokens apart (TokenScope), with the output `logits`. The trainer's parameters are
// read in place: after a training step or a load, what was computed from the old ones is dropped.
//
// Invariants: every rank of a replica has the same answers in the same order, because the first rank's requests are those that
// count, and all else follows from them. An answer depends on its request and the weights only.
//
// Threads: the rank's thread only. `submit`, `abort` and `step` are collective over a replica; `step` also over the replicas that
// the program couples, whose steps it runs with.
class Engine {
 public:
  // Throws Misuse if the model cannot keep keys and values, naming the layer, if the options do not fit the model, or if the
  // cache does not fit the memory. Collective over the mesh. `world`: of this rank.
  Engine(EngineOptions options, const World& world);

  // Adds a request, a table as `parse_request` takes it. Returns its number. Throws Misuse for one that can never be answered.
  int64_t submit(const Value& request);
  // Ends all answers of a request before the next step. Returns whether it had any.
  bool abort(int64_t number);
  // Computes some tokens of the answers that are under way, and draws the next ones. If it throws, no answer has changed.
  EngineStep step();
  bool has_work() const { return !live_.empty() || !commands_.empty(); }
  // Call after the parameters have changed in a way that no number of steps shows. What was computed from the old ones is
  // dropped.
  void forget_keys();

  EngineStats stats() const;
  const EngineOptions& options() const { return options_; }
  int64_t vocabulary() const { return vocabulary_; }  // 0: not known

 private:
  struct Command {
    Value request = {};  // nil: an end
    int64_t number = 0;
  };
  struct PlannedStep {
    std::vector<AnswerPart> parts;  // by micro-batch, in its order
    std::vector<Batch> micro_batches;
    std::vector<std::vector<KvSequence>> sequences;
  };

  void check_model() const;
  void check_longest() const;
  void check_tokenizer();
  void check_fits(const Request& request) const;
  void reserve_cache(const World& world);
  KvShapes kv_shapes() const;
  int64_t weights_version() const { return weights_ + options_.trainer->global_step(); }
  void take_commands(EngineStep& done);
  void drop_old_keys();
  std::vector<AnswerPart> schedule_parts();
  PlannedStep plan_step(std::vector<AnswerPart> parts) const;
  std::vector<DrawnTokens> run(const PlannedStep& planned);
  void finish(const PlannedStep& planned, const std::vector<DrawnTokens>& drawn, EngineStep& done);
  void remove_done(EngineStep& done);

  EngineOptions options_;
  Replica replica_;
  StepLimits limits_;
  int64_t vocabulary_ = 0;
  BytesOf bytes_of_;  // null without a tokenizer
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<CacheBooks> books_;
  std::vector<std::unique_ptr<LiveAnswer>> live_;  // in the order of arrival
  std::deque<Command> commands_;                   // of the first rank, until the next step
  int64_t next_number_ = 1, weights_ = 0, version_ = -1;
  EngineStats stats_;
};

}  // namespace zt::infer

namespace zt {
ZT_OBJECT(infer::Engine)
}
