// A row of logits and what is cut off, as tests/oracle/make_cutoffs.py writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "sample/sampler.h"

namespace zt::infer {

struct CutoffCase {
  std::vector<double> logits;
  TokenCounts counts;
  SamplingOptions options;

  explicit CutoffCase(const nlohmann::json& row)
      : logits(row.at("logits").get<std::vector<double>>()),
        options{.repetition_penalty = row.at("repetition_penalty"),
                .temperature = row.at("temperature"),
                .top_k = row.at("top_k"),
                .top_p = row.at("top_p"),
                .min_p = row.at("min_p")} {
    counts.add_prompt(row.at("prompt").get<std::vector<int32_t>>());
  }

  // Returns the tokens that can be drawn.
  std::vector<int32_t> kept() const {
    Sampler sampler;
    sampler.sample(logits, options, counts, {}, 0.5);
    return sampler.remaining();
  }
};

}  // namespace zt::infer
