// A simulation as an SVG picture.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "zt/base/tensor.h"
#include "zt/simulate/simulation.h"

namespace zt {

namespace {

// All lengths are in pixels.
constexpr double kLeft = 130, kWidth = 1200, kRight = 230, kTop = 74;
constexpr double kBox = 26, kLane = 9, kCurve = 34, kGap = 14;
constexpr double kLeastText = 13;  // a narrower box has no text

const char* color_of(const std::string& kind, Role role) {
  static const std::map<std::string, const char*> kinds{{"F", "#4c8bd6"},       {"R", "#9cc4f0"},       {"B", "#3fa66b"},
                                                        {"I", "#58c28b"},       {"W", "#e0a030"},       {"exchange", "#b8478a"},
                                                        {"UNSHARD", "#c7b23f"}, {"RESHARD", "#8f8a5a"}, {"COUNT", "#5a6b7a"},
                                                        {"NORM", "#2f3e4e"},    {"wait", "#d9d9d9"}};
  if (const auto known = kinds.find(kind); known != kinds.end()) return known->second;
  switch (role) {
    case Role::reduce:
      return "#8e63c7";
    case Role::residency:
      return "#c7b23f";
    case Role::update:
      return "#d65f5f";
    case Role::transfer:
      return "#d678b4";
    case Role::movement:
      return "#6f9f9c";
    case Role::scalars:
      return "#7a7a7a";
    default:
      return "#a8a8a8";
  }
}

// Returns the step of a scale with at most so many marks: 1, 2 or 5 times a power of ten.
double round_step(double length, int marks) {
  const double rough = std::max(length / marks, 1e-9), power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Returns text for XML, which has no control characters.
std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) {
    const bool is_control = static_cast<unsigned char>(c) < ' ';
    safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, is_control ? ' ' : c);
  }
  return safe;
}

// Actions of one kind, label and chunk that follow each other without a gap.
struct Bar {
  const SimulatedAction* first;
  const SimulatedAction* last;
  int label;  // a number on the box; -1: none
  int chunk;  // of the rank's positions, from 0
};

class Picture {
 public:
  explicit Picture(const Simulation& simulation) : simulation_(simulation) {}

  std::string draw() {
    for (const SimulatedRank& rank : simulation_.ranks) {
      for (const SimulatedAction& action : rank.actions) {
        end_ = std::max(end_, action.end);
        has_transfers_ |= action.transfer_end > action.transfer_begin;
        most_micro_batch_ = std::max(most_micro_batch_, action.micro_batch);
      }
      most_bytes_ = std::max(most_bytes_, rank.peak_bytes);
    }
    end_ = std::max(end_, simulation_.seconds);
    begin_ = simulation_.seconds > 0 ? end_ - simulation_.seconds : 0;
    const double row = row_height(), height = kTop + row * static_cast<double>(simulation_.ranks.size()) + 40;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kLeft + kWidth + kRight, height);
    text(10, 20, title(), "font-size=\"15\"");
    draw_legend();
    draw_axis(height - 36);
    for (size_t index = 0; index < simulation_.ranks.size(); ++index)
      draw_rank(simulation_.ranks[index], kTop + row * static_cast<double>(index));
    return svg_ + "</svg>\n";
  }

 private:
  double x(double seconds) const {
    const double length = end_ - begin_;
    return kLeft + (length > 0 ? std::clamp((seconds - begin_) / length, 0.0, 1.0) : 0) * kWidth;
  }

  // "1.250 to 1.500 ms"
  std::string interval(double begin, double end) const {
    return fmt::format("{:.3f} to {:.3f} ms", (begin - begin_) * 1e3, (end - begin_) * 1e3);
  }
  // A measured step has no transfers and no memory.
  double row_height() const { return kBox + (has_transfers_ ? kLane : 0) + (most_bytes_ > 0 ? kCurve : 0) + kGap; }
  double curve_top() const { return kBox + (has_transfers_ ? kLane : 0); }

  std::string title() const {
    std::string words = fmt::format("One step: {:.3f} ms, {}", simulation_.seconds * 1e3, simulation_.mesh);
    if (!simulation_.program.empty()) words += "; " + simulation_.program;
    if (!simulation_.costs.empty()) words += fmt::format("; costs '{}'", simulation_.costs);
    return words;
  }

  void text(double at_x, double at_y, const std::string& words, const std::string& style = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at_x, at_y, style, escaped(words));
  }
  // `opacity`: below 1 for a lighter box.
  void box(double begin, double end, double y, double height, const char* color, const std::string& title, double opacity = 1) {
    if (x(begin) >= kLeft + kWidth || (end <= begin_ && begin < begin_)) return;  // of another step
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"{} stroke=\"white\" "
        "stroke-width=\"0.4\"><title>{}</title></rect>\n",
        x(begin), y, std::max(x(end) - x(begin), 0.3), height, color,
        opacity < 1 ? fmt::format(" fill-opacity=\"{:.2f}\"", opacity) : "", escaped(title));
  }

  void draw_legend() {
    std::map<std::string, const char*> used;
    for (const SimulatedRank& rank : simulation_.ranks) {
      for (const SimulatedAction& action : rank.actions) used.emplace(action.kind, color_of(action.kind, action.role));
    }
    double at = kLeft;
    for (const auto& [kind, color] : used) {
      svg_ += fmt::format("<rect x=\"{:.1f}\" y=\"34\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", at, color);
      text(at + 16, 44, kind);
      at += 34 + 7.2 * static_cast<double>(kind.size());
    }
  }

  // Round marks, and one at the end of the step.
  void draw_axis(double y) {
    const double end = (end_ - begin_) * 1e3, step = round_step(end, 10);
    const auto mark = [&](double ms, const std::string& label) {
      svg_ += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n",
                          x(begin_ + ms / 1e3), kTop - 8, y);
      text(x(begin_ + ms / 1e3), y + 14, label, "text-anchor=\"middle\"");
    };
    for (int index = 0; index * step < end - 0.4 * step; ++index) mark(index * step, fmt::format("{:g} ms", index * step));
    mark(end, fmt::format("{:.3f} ms", end));
  }

  void draw_rank(const SimulatedRank& rank, double y) {
    const char* kind = rank.ranks.size() > 1 ? "ranks " : "rank ";
    text(10, y + 12, simulation_.costs.empty() ? rank.name : kind + rank.name);
    if (rank.ranks.size() > 1) text(10, y + 25, fmt::format("{} alike", rank.ranks.size()), "fill=\"#777777\"");
    svg_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n", kLeft, y, kWidth, kBox);
    for (const Bar& bar : bars(rank)) draw_bar(bar, y);
    for (const SimulatedAction& action : rank.actions) {
      if (action.transfer_end > action.transfer_begin)
        box(action.transfer_begin, action.transfer_end, y + kBox + 1, kLane - 2, color_of(action.kind, action.role),
            fmt::format("{} under way: {}", action.text, interval(action.transfer_begin, action.transfer_end)));
    }
    const double right = kLeft + kWidth + 10;
    text(right, y + 10, fmt::format("span bubble {:.3f} ms", rank.span_bubble * 1e3));
    text(right, y + 24, fmt::format("barrier bubble {:.3f} ms", rank.barrier_bubble * 1e3));
    if (rank.peak_bytes == 0) return;
    draw_curve(rank, y + curve_top());
    text(right, y + curve_top() + 14, fmt::format("memory {}", human_bytes(rank.peak_bytes)));
    text(right, y + curve_top() + 28, "in " + rank.peak_action.substr(0, 30), "fill=\"#777777\"");
  }

  void draw_bar(const Bar& bar, double y) {
    const SimulatedAction &first = *bar.first, &last = *bar.last;
    const std::string words = &first == &last ? first.text : first.text + " ... " + last.text;
    constexpr double kLightest = 0.55, kLighter = 0.2;
    box(first.begin, last.end, y, kBox, color_of(first.kind, first.role),
        fmt::format("{}: {}", words, interval(first.begin, last.end)), std::max(kLightest, 1 - kLighter * bar.chunk));
    if (bar.label >= 0 && x(last.end) - x(first.begin) >= kLeastText)
      text((x(first.begin) + x(last.end)) / 2, y + 17, std::to_string(bar.label), "text-anchor=\"middle\" fill=\"white\"");
  }

  // The memory that the rank holds: the constant part dark, what the step's actions hold light.
  void draw_curve(const SimulatedRank& rank, double y) {
    const auto height = [&](int64_t bytes) { return kCurve * static_cast<double>(bytes) / static_cast<double>(most_bytes_); };
    const double floor = y + kCurve, constant = height(rank.constant_bytes);
    std::string points = fmt::format("{:.2f},{:.1f}", x(begin_), floor - constant);
    int64_t held = 0;
    for (const SimulatedAction& action : rank.actions) {
      points += fmt::format(" {0:.2f},{1:.1f} {0:.2f},{2:.1f}", x(action.end), floor - height(rank.constant_bytes + held),
                            floor - height(rank.constant_bytes + action.held_bytes));
      held = action.held_bytes;
    }
    svg_ += fmt::format("<polygon points=\"{0} {1:.2f},{2:.1f} {3:.2f},{2:.1f}\" fill=\"#f0b8a0\"/>\n", points, x(end_),
                        floor - constant, x(begin_));
    svg_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"#b09088\"/>\n", kLeft,
                        floor - constant, kWidth, constant);
  }

  // Returns the chunk of each position that the rank runs: consecutive positions are one chunk.
  static std::map<int, int> chunks_of(const SimulatedRank& rank) {
    std::map<int, int> chunks;
    for (const SimulatedAction& action : rank.actions) {
      if (action.role == Role::compute && action.target >= 0) chunks[action.target] = 0;
    }
    int chunk = 0, before = chunks.empty() ? 0 : chunks.begin()->first;
    for (auto& [position, number] : chunks) {
      if (position > before + 1) ++chunk;
      number = chunk;
      before = position;
    }
    return chunks;
  }

  // Boxes have the number of their micro-batch; if there is only one, that of their position or unit.
  std::vector<Bar> bars(const SimulatedRank& rank) const {
    const std::map<int, int> chunks = chunks_of(rank);
    std::vector<Bar> bars;
    for (const SimulatedAction& action : rank.actions) {
      if (action.end <= action.begin) continue;
      const auto chunk = action.role == Role::compute ? chunks.find(action.target) : chunks.end();
      const Bar bar{&action, &action, most_micro_batch_ > 0 ? action.micro_batch : action.target,
                    chunk == chunks.end() ? 0 : chunk->second};
      const bool continues = !bars.empty() && bars.back().first->kind == action.kind && bars.back().label == bar.label &&
                             bars.back().chunk == bar.chunk && action.begin - bars.back().last->end < 1e-9;
      if (continues) bars.back().last = &action;
      else bars.push_back(bar);
    }
    return bars;
  }

  const Simulation& simulation_;
  std::string svg_;
  double begin_ = 0, end_ = 0;  // of what is drawn: the last rank to begin its step, and the end
  int64_t most_bytes_ = 0;
  int most_micro_batch_ = 0;
  bool has_transfers_ = false;
};

}  // namespace

std::string Simulation::picture() const {
  return Picture(*this).draw();
}

}  // namespace zt
