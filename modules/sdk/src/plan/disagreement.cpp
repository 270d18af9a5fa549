#include "disagreement.h"

#include <algorithm>
#include <sstream>

#include "zt/base/error.h"

namespace zt {

namespace {

// A line of a program, with the words that name it.
struct NamedLine {
  std::string name, text;
};

std::vector<std::string> lines_of_text(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The lines of a program's text: the header and those of units, and the actions by their number.
struct ProgramLines {
  std::vector<NamedLine> heads, actions;
};

ProgramLines program_lines(const std::string& program) {
  ProgramLines lines;
  for (const std::string& line : lines_of_text(program)) {
    const bool is_header = line.starts_with("program ");
    if (is_header || line.starts_with("unit ")) lines.heads.push_back({is_header ? "the header" : "the line of a unit", line});
    else lines.actions.push_back({fmt::format("action {}", lines.actions.size()), line});
  }
  return lines;
}

std::string quoted(const std::vector<NamedLine>& lines, size_t index) {
  return index < lines.size() ? fmt::format("'{}'", lines[index].text) : "missing";
}

// Returns "action 12 is 'B 2 0' on rank 2 and 'R 2 0' on rank 0" for the first lines that differ.
std::string difference(const std::vector<NamedLine>& theirs, const std::vector<NamedLine>& ours, int rank) {
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    const bool is_same = i < theirs.size() && i < ours.size() && theirs[i].text == ours[i].text;
    if (is_same) continue;
    return fmt::format("{} is {} on rank {} and {} on rank 0", i < ours.size() ? ours[i].name : theirs[i].name, quoted(theirs, i),
                       rank, quoted(ours, i));
  }
  return "";
}

// Returns the first line of a unit or the header and the first action that differ.
std::string difference(const ProgramLines& theirs, const ProgramLines& ours, int rank) {
  const std::string heads = difference(theirs.heads, ours.heads, rank), actions = difference(theirs.actions, ours.actions, rank);
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
    const auto all = control.all_gather_values(has_part ? Value(text) : Value(""));
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
                     difference(program_lines(texts.theirs), program_lines(texts.ours), rank));
}

}  // namespace zt
