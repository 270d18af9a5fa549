// The options of an engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/kv_store.h"
#include "zt/base/words.h"
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

}  // namespace zt::infer
