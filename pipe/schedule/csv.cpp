#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "text.h"
#include "zt/base/error.h"

namespace zt::pipe {

namespace {

struct Cell {
  std::string text, where;
};

// Returns whether a cell is communication in the form that PyTorch writes by default: 0UNSHARD, 1SEND_F0, 0REDUCE_GRAD.
bool is_communication(std::string_view text) {
  static constexpr std::array kNames{"UNSHARD", "RESHARD", "REDUCE_GRAD", "SEND_F", "RECV_F", "SEND_B", "RECV_B"};
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const size_t stage = static_cast<size_t>(std::ranges::find_if_not(text, is_digit) - text.begin());
  while (!text.empty() && is_digit(text.back())) text.remove_suffix(1);
  return stage > 0 && stage < text.size() && std::ranges::find(kNames, text.substr(stage)) != kNames.end();
}

// Returns the tasks of each row, without cells that are empty or communication.
std::vector<std::vector<Cell>> cells_of(const std::string& csv) {
  std::vector<std::vector<Cell>> rows;
  std::istringstream lines(without_byte_order_mark(csv));
  for (std::string line; std::getline(lines, line);) {
    std::erase_if(line, [](char c) { return c == '\r' || c == ' ' || c == '"' || c == '\t'; });
    auto& row = rows.emplace_back();
    std::istringstream cells(line);
    int column = 0;
    for (std::string cell; std::getline(cells, cell, ',');) {
      ++column;
      if (!cell.empty() && !is_communication(cell))
        row.push_back({cell, fmt::format("schedule, row {}, cell {}", rows.size(), column)});
    }
  }
  while (!rows.empty() && rows.back().empty()) rows.pop_back();
  return rows;
}

// Older files write BW for a whole backward, and B for one for the inputs.
Task parse_cell(std::string text, const std::string& where, bool is_old) {
  const size_t letter = text.find('B');
  if (is_old && letter != std::string::npos) {
    if (text.compare(letter, 2, "BW") == 0) text.erase(letter + 1, 1);
    else text[letter] = 'I';
  }
  return parse_task(text, where);
}

PipelineStep parse_step(const Cell& cell, bool is_old) {
  static const std::string kOverlap = ")OVERLAP_F_B";
  if (cell.text.front() != '(') return {parse_cell(cell.text, cell.where, is_old)};
  const size_t middle = cell.text.find(';'), end = cell.text.find(kOverlap);
  if (middle == std::string::npos || end == std::string::npos || middle > end || end + kOverlap.size() != cell.text.size())
    misuse("{}: '{}' is no pair of overlapped tasks: give one such as (0F5;3B2)OVERLAP_F_B", cell.where, cell.text);
  return {parse_cell(cell.text.substr(1, middle - 1), cell.where, is_old),
          parse_cell(cell.text.substr(middle + 1, end - middle - 1), cell.where, is_old)};
}

// Returns whether the cells have the older letters. Their proof is a BW, or a W beside a B of the same task: a whole backward has
// no W, so that B is one for the inputs.
bool has_old_letters(const std::vector<std::vector<Cell>>& rows) {
  std::set<std::string> wholes, halves;  // the texts of B and of W, without the letter
  for (const auto& row : rows) {
    for (const Cell& cell : row) {
      if (cell.text.find("BW") != std::string::npos) return true;
      if (cell.text.front() == '(') continue;
      for (const auto& [letter, texts] : {std::pair('B', &wholes), std::pair('W', &halves)}) {
        const size_t at = cell.text.find(letter);
        if (at != std::string::npos) texts->insert(cell.text.substr(0, at) + ' ' + cell.text.substr(at + 1));
      }
    }
  }
  return std::ranges::any_of(halves, [&](const std::string& text) { return wholes.contains(text); });
}

// Finds out how many stages and micro-batches there are, and where the stages run.
void complete_header(PipelineSchedule& schedule) {
  std::map<int, int> ranks;
  int64_t micro_batches = 1;
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    for (const PipelineStep& step : schedule.ranks[static_cast<size_t>(rank)]) {
      for_each_task(step, [&](const Task& task) {
        ranks.try_emplace(task.stage, rank);
        micro_batches = std::max(micro_batches, int64_t{task.micro_batch} + 1);
      });
    }
  }
  int next = 0;
  for (const auto& [stage, rank] : ranks) {
    if (stage != next++) misuse("schedule: no row runs stage {}, but there is a stage {}", next - 1, stage);
    schedule.rank_of_stage.push_back(rank);
  }
  check_size(static_cast<int>(schedule.ranks.size()), schedule.stages(), micro_batches);
  schedule.micro_batches = static_cast<int>(micro_batches);
  schedule.placement = StagePlacement::by_stage;
  const auto p = static_cast<int>(schedule.ranks.size()), stages = schedule.stages();
  if (stages % p != 0) return;
  if (schedule.rank_of_stage == place_stages(StagePlacement::loop, p, stages / p)) schedule.placement = StagePlacement::loop;
  else if (stages == 2 * p && schedule.rank_of_stage == place_stages(StagePlacement::v, p, 2))
    schedule.placement = StagePlacement::v;
}

}  // namespace

std::string to_csv(const PipelineSchedule& schedule) {
  std::string csv;
  for (const auto& steps : schedule.ranks) {
    std::string row;
    for (const PipelineStep& step : steps) row += (row.empty() ? "" : ",") + text_of(step) + (step.beside ? "OVERLAP_F_B" : "");
    csv += row + "\n";
  }
  return csv;
}

PipelineSchedule from_csv(const std::string& csv) {
  const auto rows = cells_of(csv);
  if (rows.empty()) misuse("schedule: the text has no rows: PyTorch's form has one per rank, such as 0F0,0F1,0B0,0B1");
  const bool is_old = has_old_letters(rows);
  PipelineSchedule schedule;
  for (const auto& row : rows) {
    auto& steps = schedule.ranks.emplace_back();
    for (const Cell& cell : row) steps.push_back(parse_step(cell, is_old));
  }
  complete_header(schedule);
  return schedule;
}

}  // namespace zt::pipe
