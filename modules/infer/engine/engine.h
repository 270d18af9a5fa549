// Answers many requests at once with a model: each step computes some tokens of each, and draws the next ones.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/draw.h"
#include "engine/engine_options.h"
#include "engine/replica.h"
#include "engine/step_plan.h"
#include "zt/base/object.h"
#include "zt/process/world.h"

namespace zt::infer {

// The result of a step.
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
  int64_t waiting = 0, running = 0;       // answers now
  int64_t blocks = 0;                     // in the cache
  int64_t free_blocks = 0;                // of them: no answer and no prefix holds them
  int64_t prefix_blocks = 0;              // of them: the prefix cache holds them
  int64_t cache_bytes = 0;                // of this rank
  double seconds = 0, layer_seconds = 0;  // in steps; of these in Trainer::infer
};

// Requires a causal model whose layers treat tokens apart (TokenScope), with the output `logits`. The trainer's parameters are
// read in place: after a training step, a load or a new value, what was computed from the old ones is dropped, and answers that
// have begun end with an error.
//
// Invariants: every rank of a replica has the same answers in the same order, because the first rank's requests are those that
// count, and all else follows from them. An answer depends on its request and the weights only.
//
// Threads: the rank's thread only. `submit`, `abort` and `step` are collective over a replica; `step` also over the replicas that
// the program couples, whose steps it runs with.
class Engine {
 public:
  // `options` as checked_options returns them. Throws Misuse if the cache does not fit the memory. Collective over the mesh.
  // `world`: of this rank. In a dry run the engine has no cache, and only `describe_step` may be called.
  Engine(EngineOptions options, const World& world);

  // Throws Misuse, with `path`, for a request that can never be answered: a table as `parse_request` takes it. Not collective.
  void check(const Value& request, const std::string& path) const { checked(request, path); }
  // As Replica::agreed, for what is wrong with requests on some ranks only.
  std::string agreed(const std::string& mine, int64_t requests) const { return replica_.agreed(mine, requests); }
  // Adds a request. Returns its number. Throws as `check`. `path`: its name in messages; empty: "request NUMBER".
  int64_t submit(const Value& request, const std::string& path = {});
  // Ends all answers of a request before the next step. Returns whether it had any.
  bool abort(int64_t number);
  // Computes some tokens of the answers that are under way, and draws the next ones. If it throws, no answer has changed.
  EngineStep step();
  bool is_coupled() const { return replica_.is_coupled(); }  // with other replicas
  bool has_work() const { return !live_.empty() || !commands_.empty(); }

  // Lets the plan of the dry trainer describe a step of this engine. Returns the step's micro-batches: as many tokens as a step
  // computes. Throws Misuse if the trainer has an optimizer, or if the cache has no room for one sequence.
  std::vector<Batch> describe_step() const;

  EngineStats stats() const;
  const EngineOptions& options() const { return options_; }
  int64_t vocabulary() const { return vocabulary_; }  // 0: not known

 private:
  struct Command {
    Value request = {};  // nil: an end
    int64_t number = 0;
    std::string path = {};
  };
  Value checked(const Value& request, const std::string& path) const;
  void take_commands();
  void drop_old_keys();
  std::vector<AnswerPart> schedule_parts();
  std::vector<DrawnTokens> run(const PlannedStep& planned);
  void finish(const PlannedStep& planned, const std::vector<DrawnTokens>& drawn, EngineStep& done);
  void remove_done();

  EngineOptions options_;
  World world_;
  Replica replica_;
  StepLimits limits_;
  int64_t vocabulary_;
  std::optional<TokenShare> share_;  // of the vocabulary, if logits stay cut
  std::string logits_;               // the name of the output that has the logits
  TokenBytes bytes_of_;              // null without a tokenizer
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<CacheBooks> books_;
  std::vector<std::unique_ptr<LiveAnswer>> live_;  // in the order of arrival
  std::vector<Answer> done_;                       // until a step returns them: one that throws does not
  std::deque<Command> commands_;                   // of the first rank, until the next step
  int64_t next_number_ = 1;
  int64_t weights_ = 0;                                       // the version of the parameters
  std::tuple<int64_t, int64_t, bool> seen_ = {-1, -1, true};  // the trainer's step, replacements and adapters when last seen
  EngineStats stats_;
};

}  // namespace zt::infer

namespace zt {
ZT_OBJECT(infer::Engine)
}
