// The phases of a training, among which the records of a split are divided.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tokens/token_file.h"

namespace zt::data {

// One of the phases.
struct RecordPhase {
  std::vector<double> weights;  // the shares of the phases: of any sum
  int64_t index = 0;            // of this phase, from 0
};
// Throws Misuse unless the weights are finite, at least 0 and not all 0, and have the index.
void check_phase(const RecordPhase& phase);
std::string text_of(const RecordPhase& phase);  // "phase 1 of {2, 4, 4}"

// Returns, ascending, the indices of the records that a stream reads of `records`: those of the split and, if there are phases,
// of the phase. Each record of a split is in exactly one phase. A permutation with a constant key decides, so phases are random
// subsets, and equal in all streams. Phase k has the places from floor(n W(k)) to floor(n W(k + 1)) of the permuted n records,
// where W(k) is the sum of the normalised weights before k.
std::vector<int64_t> chosen_records(int64_t records, double validation, Split split, const std::optional<RecordPhase>& phase);

}  // namespace zt::data
