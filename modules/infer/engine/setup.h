// Checks the options of an engine and sizes its cache, before the first step.
#pragma once

#include <memory>
#include <optional>

#include "engine/engine_options.h"
#include "engine/replica.h"
#include "engine/request.h"
#include "sample/shared_rows.h"
#include "zt/process/world.h"

namespace zt::infer {

inline constexpr const char* kInvariantGemm = "dots";  // the provider of GEMMs whose rows do not depend on each other

// Returns the name of the last layer's output that has the logits: `logits`, or `logprobs` of nn.lm_logprobs, which outputs them
// when the batch has no labels. Empty: there is none.
std::string logits_output(const ModelInfo& model);
// Returns why the model cannot keep keys and values, with the name of the layer; empty: it can.
std::string cannot_keep_keys(const Program& program);
// Returns the options with `max_context`. Throws Misuse, naming the layer or the option, if the model cannot keep keys and values
// or if an option does not fit it.
EngineOptions checked_options(EngineOptions options);
// Returns the rows of the parameter that has one for each token; 0 if there is none.
int64_t vocabulary_of(const ModelInfo& model);

// Makes the memory for keys and values: as many blocks as all sequences at their longest need, or as the option `memory` allows.
// The ranks of a replica get equally many. Throws Misuse if it does not fit, or if one sequence does not fit in it.
std::unique_ptr<KvStore> make_store(const EngineOptions& options, const Replica& replica, const World& world);

// Returns how the ranks share the model's vocabulary, if the last layer can leave the classes of its logits cut.
std::optional<TokenShare> token_share(const Program& program);

// Returns the bytes of keys and values of each rank in a plan, where nothing is allocated and weights take memory first. Throws
// Misuse if one sequence does not fit.
CacheBytes planned_cache(const EngineOptions& options, const World& world);

// Throws Misuse if the model can never answer the request.
void check_fits(const Request& request, const EngineOptions& options);

}  // namespace zt::infer
