// Common code of the verifier's tests: a program as lines of text, edits of these lines, and the verifier's errors as text.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "zt/program/rank_program.h"

namespace zt::test {

inline std::vector<Refusal> verify_all(const ModelInfo& model, const MeshShape& mesh, const std::vector<RankProgram>& programs,
                                       size_t limit = 20) {
  std::vector<const RankProgram*> pointers;
  for (const RankProgram& program : programs) pointers.push_back(&program);
  return verify(model, mesh, pointers, limit);
}

inline std::string text_of(const std::vector<Refusal>& refusals) {
  std::string text;
  for (const Refusal& refusal : refusals) text += refusal.text() + "\n";
  return text;
}

inline MeshShape dp(int ranks) {
  return MeshShape({{"dp", ranks}}, ranks);
}

// Returns the program that zero.shard builds for a chain of three layers at stage 1. Edits refer to line numbers.
inline std::vector<std::string> stage_1_lines() {
  return {"COUNT axes=[\"dp\"]",          // 0
          "F 0 0",                        // 1
          "F 1 0",                        // 2
          "F 2 0",                        // 3
          "B 2 0",                        // 4
          "REDUCE_GRAD 2 axes=[\"dp\"]",  // 5
          "B 1 0",                        // 6
          "REDUCE_GRAD 1 axes=[\"dp\"]",  // 7
          "B 0 0",                        // 8
          "REDUCE_GRAD 0 axes=[\"dp\"]",  // 9
          "NORM axes=[\"dp\"]",           // 10
          "STEP 0",                       // 11
          "UNSHARD 0 axes=[\"dp\"]",      // 12
          "STEP 1",                       // 13
          "UNSHARD 1 axes=[\"dp\"]",      // 14
          "STEP 2",                       // 15
          "UNSHARD 2 axes=[\"dp\"]"};     // 16
}

inline RankProgram from_lines(const std::vector<std::string>& lines) {
  RankProgram program{.units = std::vector<UnitPlan>(3, plan_of_stage(1)), .actions = {}};
  for (const std::string& line : lines) program.actions.push_back(parse_action(line));
  return program;
}

// Edits of a list of lines.
using Lines = std::vector<std::string>;
using Edit = std::function<void(Lines&)>;
inline Edit erase(int at) {
  return [=](Lines& lines) { lines.erase(lines.begin() + at); };
}
inline Edit insert(int at, std::string line) {
  return [=](Lines& lines) { lines.insert(lines.begin() + at, line); };
}
inline Edit replace(int at, std::string line) {
  return [=](Lines& lines) { lines[at] = line; };
}
inline Edit swap(int a, int b) {
  return [=](Lines& lines) { std::swap(lines[a], lines[b]); };
}
inline Edit both(Edit a, Edit b) {
  return [=](Lines& lines) { a(lines), b(lines); };
}

inline Edit extra_reduction_at(int at) {
  return [at](Lines& lines) {
    register_kind(
        {"SUM_LOG", Index::none, false, "sums what is logged", [](const Action&, const ModelInfo&) { return Resources{}; }});
    lines.insert(lines.begin() + at, "SUM_LOG axes=[\"dp\"]");
  };
}

// Expects that the first refusal is of the action at `step`, with `reason` in its text.
inline void expect_refusal(const std::vector<Refusal>& refusals, int step, const std::string& reason) {
  ASSERT_FALSE(refusals.empty()) << "accepted";
  EXPECT_EQ(refusals[0].step, step) << text_of(refusals);
  EXPECT_NE(refusals[0].reason.find(reason), std::string::npos) << text_of(refusals);
}

}  // namespace zt::test
