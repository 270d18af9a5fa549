// The work of one rank for a row of logits that ranks share (shared_rows.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sample/shared_rows.h"

namespace zt::infer {

// The numbers that a rank sends first for each row.
enum RowField : int64_t { kIsWrong, kRawMost, kRawSum, kMost, kSum, kBest, kBestRaw, kHasKnown, kKnown, kFields };
constexpr int64_t kClasses = 64;     // of logits, the largest first: how many tokens each has, and the sum of their weights
constexpr double kClassWidth = 0.5;  // of a class, in units of the temperature
constexpr int64_t kNumbers = 3;      // of a candidate: its token, its changed and its unchanged logit
constexpr double kMargin = 1e-9;     // of sums that are rounded otherwise than those by which tokens are kept

// A row, as this rank sees it after the first gather.
struct SharedRow {
  std::vector<double> changed = {};  // the logits of this rank's tokens, after penalties and biases
  double log_sum = 0;                // log(sum(exp(logits))) of all ranks, unchanged
  double most = kNeverDrawn;         // the largest changed logit of all ranks
  double total = 0;                  // sum of the weights of all tokens
  int owner = -1;                    // the rank whose token is drawn, if no cut-off needs candidates; -1: not known
  double before = 0;                 // sum of the weights of ranks before the owner
  int64_t last_class = -1;           // with cut-offs: tokens of later classes cannot remain
  std::vector<int64_t> counts = {};  // by rank: its candidates
};

// Returns the sum of exp((logit - most) / temperature), where `most` is the largest logit.
double sum_of_weights(std::span<const double> logits, double most, double temperature);
// Returns the class of a logit.
int64_t class_of(double logit, double most, double temperature);

bool is_drawn(const RowTask& task);
bool is_cut_off(const RowTask& task);

// Writes what this rank's tokens, from `first` on, add to sums: kFields numbers. Sets their changed logits.
void describe_row(const RowTask& task, int64_t first, std::vector<double>& changed, double* to);
// Writes the candidates and the likeliest tokens of this rank, and advances `to`.
void write_candidates(const RowTask& task, const SharedRow& shared, const TokenShare& share, double*& to);

}  // namespace zt::infer
