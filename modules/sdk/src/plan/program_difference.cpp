#include "program_difference.h"

#include <algorithm>
#include <sstream>

namespace zt {

namespace {

using Lines = std::vector<std::string>;

Lines lines_of_text(const std::string& text) {
  Lines lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string quoted(const Lines& lines, size_t index) {
  return index < lines.size() ? fmt::format("'{}'", lines[index]) : "missing";
}

// Returns "action 12 is 'B 2 0' on rank 2 and 'R 2 0' on rank 0" for the first lines that differ.
std::string differing_line(const Lines& theirs, const Lines& ours, int rank) {
  const auto i = static_cast<size_t>(std::ranges::mismatch(theirs, ours).in1 - theirs.begin());
  if (i == theirs.size() && i == ours.size()) return "";
  const std::string& line = i < ours.size() ? ours[i] : theirs[i];
  const std::string name = line.starts_with("program ") ? "the header"
                           : line.starts_with("unit ")  ? "the line of a unit"
                                                        : fmt::format("action {}", i);
  return fmt::format("{} is {} on rank {} and {} on rank 0", name, quoted(theirs, i), rank, quoted(ours, i));
}

// Takes the lines of the header and of units out of a program's text.
Lines take_heads(Lines& program) {
  const auto actions = std::ranges::stable_partition(
      program, [](const std::string& line) { return line.starts_with("program ") || line.starts_with("unit "); });
  Lines heads(program.begin(), actions.begin());
  program.erase(program.begin(), actions.begin());
  return heads;
}

// Returns the first line of a unit or the header and the first action that differ.
std::string difference(Lines theirs, Lines ours, int rank) {
  const std::string heads = differing_line(take_heads(theirs), take_heads(ours), rank),
                    actions = differing_line(theirs, ours, rank);
  return heads + (heads.empty() || actions.empty() ? "" : ", and ") + actions;
}

// The texts of rank 0 and of another rank.
struct Pair {
  std::string ours, theirs;
};

}  // namespace

std::string first_difference(const std::vector<std::shared_ptr<const RankProgram>>& mine, int rank, Communicator& control) {
  const bool has_part = control.rank() == 0 || control.rank() == rank;
  const auto exchange = [&](const std::string& text) -> Pair {
    const auto all = control.all_gather_values(has_part ? Value(text) : Value(""), "makes a trainer");
    return {*all[0].get_if<std::string>(), *all[static_cast<size_t>(rank)].get_if<std::string>()};
  };
  std::string hashes;
  for (const auto& program : mine) hashes += fmt::format("{:016x}\n", program->hash());
  const Pair programs = exchange(hashes);
  const auto ours = lines_of_text(programs.ours), theirs = lines_of_text(programs.theirs);
  if (ours.size() != theirs.size())
    return fmt::format("It built programs for {} ranks, and rank 0 for {}.", theirs.size(), ours.size());
  const auto other = static_cast<size_t>(std::ranges::mismatch(ours, theirs).in1 - ours.begin());
  const Pair texts = exchange(other < mine.size() ? mine[other]->text() : "");
  return fmt::format("In the program of rank {}, {}.", other,
                     difference(lines_of_text(texts.theirs), lines_of_text(texts.ours), rank));
}

}  // namespace zt
