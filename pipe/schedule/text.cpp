#include "text.h"

#include <algorithm>
#include <sstream>

#include "zt/base/error.h"

namespace zt::pipe {

namespace {

constexpr int kVersion = 2;
const char* const kPlacements[] = {"loop", "v", "by_stage"};

class ScheduleReader {
 public:
  explicit ScheduleReader(const std::string& text) : stream_(text) {}

  PipelineSchedule read() {
    const auto title = words("the title 'ztoolkit schedule 2'");
    if (title.size() != 3 || title[0] != "ztoolkit" || title[1] != "schedule")
      misuse("{}: a schedule begins with 'ztoolkit schedule {}'", here(), kVersion);
    if (number(title[2]) != kVersion)
      misuse("{}: this is version {} of the format, and this ztoolkit reads version {}", here(), title[2], kVersion);
    const auto header = words("ranks, chunks and micro_batches");
    if (header.size() != 6 || header[0] != "ranks" || header[2] != "chunks" || header[4] != "micro_batches")
      misuse("{}: 'ranks P chunks V micro_batches M' is missing", here());
    const int ranks = number(header[1]), chunks = number(header[3]), micro_batches = number(header[5]);
    PipelineSchedule schedule = read_placement(ranks, chunks, micro_batches);
    for (int rank = 0; rank < ranks; ++rank) read_rank(schedule, rank, ranks);
    std::string line;
    while (next_line(line)) misuse("{}: there is more than the {} ranks of the schedule: '{}'", here(), ranks, line);
    return schedule;
  }

 private:
  std::string here() const { return fmt::format("schedule, line {}", line_); }

  // Reads the next line that is not empty.
  bool next_line(std::string& line) {
    while (std::getline(stream_, line)) {
      ++line_;
      if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
    }
    return false;
  }

  std::vector<std::string> words(const std::string& wanted) {
    std::string line;
    if (!next_line(line)) misuse("schedule, after line {}: the text ends, and {} is missing: it is cut short", line_, wanted);
    std::istringstream stream(line);
    std::vector<std::string> found;
    for (std::string word; stream >> word;) found.push_back(word);
    return found;
  }

  int number(const std::string& word) const {
    const bool is_number =
        !word.empty() && word.size() <= 7 && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    if (!is_number) misuse("{}: '{}' is no whole number from 0 to 9999999", here(), word);
    return std::stoi(word);
  }

  // Returns the schedule without its steps.
  PipelineSchedule read_placement(int ranks, int chunks, int micro_batches) {
    const auto given = words("the placement");
    const auto* known =
        given.size() >= 2 && given[0] == "placement" ? std::ranges::find(kPlacements, given[1]) : std::end(kPlacements);
    if (known == std::end(kPlacements))
      misuse("{}: give 'placement loop', 'placement v' or 'placement by_stage RANK ...'", here());
    const auto placement = static_cast<StagePlacement>(known - kPlacements);
    if (placement != StagePlacement::by_stage) {
      if (given.size() > 2) misuse("{}: only 'by_stage' is followed by ranks", here());
      return empty_schedule(placement, ranks, chunks, micro_batches);
    }
    std::vector<int> rank_of_stage;
    for (size_t i = 2; i < given.size(); ++i) rank_of_stage.push_back(number(given[i]));
    return empty_schedule(std::move(rank_of_stage), ranks, micro_batches);
  }

  void read_rank(PipelineSchedule& schedule, int rank, int ranks) {
    const auto given = words(fmt::format("the list of rank {} of {}", rank, ranks));
    if (given.size() < 2 || given[0] != "rank" || given[1] != fmt::format("{}:", rank))
      misuse("{}: the list of rank {} is missing: it begins with 'rank {}:'", here(), rank, rank);
    for (size_t i = 2; i < given.size(); ++i) schedule.ranks[static_cast<size_t>(rank)].push_back(parse_step(given[i]));
  }

  PipelineStep parse_step(const std::string& word) const {
    const size_t middle = word.find(';');
    if (word.front() != '(') return {parse_task(word, here())};
    if (word.back() != ')' || middle == std::string::npos)
      misuse("{}: '{}' is no pair of overlapped tasks: give one such as (0F5;3B2)", here(), word);
    return {parse_task(word.substr(1, middle - 1), here()),
            parse_task(word.substr(middle + 1, word.size() - middle - 2), here())};
  }

  std::istringstream stream_;
  int line_ = 0;
};

}  // namespace

std::string to_text(const PipelineSchedule& schedule) {
  std::string text =
      fmt::format("ztoolkit schedule {}\nranks {} chunks {} micro_batches {}\nplacement {}", kVersion, schedule.ranks.size(),
                  schedule.chunks(), schedule.micro_batches, kPlacements[static_cast<size_t>(schedule.placement)]);
  if (schedule.placement == StagePlacement::by_stage) text += fmt::format(" {}", fmt::join(schedule.rank_of_stage, " "));
  text += '\n';
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += fmt::format("rank {}:", rank);
    for (const PipelineStep& step : schedule.ranks[rank]) text += " " + text_of(step);
    text += '\n';
  }
  return text;
}

PipelineSchedule from_text(const std::string& text) {
  return ScheduleReader(without_byte_order_mark(text)).read();
}

std::string without_byte_order_mark(const std::string& text) {
  static const std::string kMark = "\xEF\xBB\xBF";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

}  // namespace zt::pipe
