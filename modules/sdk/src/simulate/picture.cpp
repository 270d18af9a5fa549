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
constexpr double kRow = kBox + kLane + kCurve + kGap;
constexpr double kLeastText = 13;  // a narrower box has no text

const char* color_of(const std::string& kind, Role role) {
  static const std::map<std::string, const char*> layers{{"F", "#4c8bd6"}, {"R", "#9cc4f0"}, {"B", "#3fa66b"},
                                                         {"I", "#58c28b"}, {"W", "#e0a030"}, {"exchange", "#b8478a"}};
  if (const auto known = layers.find(kind); known != layers.end()) return known->second;
  switch (role) {
    case Role::reduce:
      return "#8e63c7";
    case Role::residency:
      return "#c7b23f";
    case Role::update:
      return "#d65f5f";
    case Role::transfer:
      return "#d678b4";
    case Role::scalars:
      return "#7a7a7a";
    default:
      return "#a8a8a8";
  }
}

std::string escaped(const std::string& text) {
  std::string safe;
  for (const char c : text) safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  return safe;
}

// Actions of one kind and micro-batch that follow each other without a gap.
struct Bar {
  std::string kind;
  Role role;
  int micro_batch;
  double begin, end;
  std::string first, last;  // texts of the actions
};

class Picture {
 public:
  explicit Picture(const Simulation& simulation) : simulation_(simulation) {}

  std::string draw() {
    const double height = kTop + kRow * static_cast<double>(simulation_.ranks.size()) + 40;
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kLeft + kWidth + kRight, height);
    text(10, 20,
         fmt::format("One step: {:.3f} ms, {}{}", simulation_.seconds * 1e3, simulation_.mesh,
                     simulation_.costs.empty() ? "" : fmt::format(", costs '{}'", simulation_.costs)),
         "font-size=\"15\"");
    for (const SimulatedRank& rank : simulation_.ranks) {
      for (const SimulatedAction& action : rank.actions) end_ = std::max({end_, action.end, action.transfer_end});
      most_bytes_ = std::max(most_bytes_, rank.peak_bytes);
    }
    end_ = std::max(end_, simulation_.seconds);
    draw_legend();
    draw_axis(height - 36);
    for (size_t index = 0; index < simulation_.ranks.size(); ++index)
      draw_rank(simulation_.ranks[index], kTop + kRow * static_cast<double>(index));
    return svg_ + "</svg>\n";
  }

 private:
  double x(double seconds) const { return kLeft + (end_ > 0 ? seconds / end_ : 0) * kWidth; }

  void text(double at_x, double at_y, const std::string& words, const std::string& style = "") {
    svg_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", at_x, at_y, style, escaped(words));
  }
  void box(double begin, double end, double y, double height, const char* color, const std::string& title) {
    svg_ += fmt::format(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" stroke=\"white\" stroke-width=\"0.4\">"
        "<title>{}</title></rect>\n",
        x(begin), y, std::max(x(end) - x(begin), 0.3), height, color, escaped(title));
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

  void draw_axis(double y) {
    const double rough = end_ * 1e3 / 8, power = std::pow(10, std::floor(std::log10(std::max(rough, 1e-9))));
    const double tick = std::ceil(rough / power) * power;
    for (double ms = 0; ms <= end_ * 1e3 + tick * 1e-6 && tick > 0; ms += tick) {
      svg_ += fmt::format("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.1f}\" stroke=\"#dddddd\"/>\n", x(ms / 1e3),
                          kTop - 8, y);
      text(x(ms / 1e3), y + 14, fmt::format("{:g} ms", ms), "text-anchor=\"middle\"");
    }
  }

  void draw_rank(const SimulatedRank& rank, double y) {
    const char* kind = rank.ranks.size() > 1 ? "ranks " : "rank ";
    text(10, y + 12, simulation_.costs.empty() ? rank.name : kind + rank.name);
    if (rank.ranks.size() > 1) text(10, y + 25, fmt::format("{} alike", rank.ranks.size()), "fill=\"#777777\"");
    svg_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n", kLeft, y, kWidth, kBox);
    for (const Bar& each : bars(rank)) {
      const std::string title = each.first == each.last ? each.first : each.first + " ... " + each.last;
      box(each.begin, each.end, y, kBox, color_of(each.kind, each.role),
          fmt::format("{}: {:.3f} to {:.3f} ms", title, each.begin * 1e3, each.end * 1e3));
      if (each.micro_batch >= 0 && x(each.end) - x(each.begin) >= kLeastText)
        text((x(each.begin) + x(each.end)) / 2, y + 17, std::to_string(each.micro_batch),
             "text-anchor=\"middle\" fill=\"white\"");
    }
    for (const SimulatedAction& action : rank.actions) {
      if (action.transfer_end > action.transfer_begin)
        box(action.transfer_begin, action.transfer_end, y + kBox + 1, kLane - 2, color_of(action.kind, action.role),
            fmt::format("{} under way: {:.3f} to {:.3f} ms", action.text, action.transfer_begin * 1e3,
                        action.transfer_end * 1e3));
    }
    const double right = kLeft + kWidth + 10;
    text(right, y + 10, fmt::format("span bubble {:.3f} ms", rank.span_bubble * 1e3));
    text(right, y + 24, fmt::format("barrier bubble {:.3f} ms", rank.barrier_bubble * 1e3));
    if (rank.peak_bytes == 0) return;
    draw_curve(rank, y + kBox + kLane);
    text(right, y + kBox + kLane + 14, fmt::format("memory {}", human_bytes(rank.peak_bytes)));
    text(right, y + kBox + kLane + 28, "in " + rank.peak_action.substr(0, 30), "fill=\"#777777\"");
  }

  // The memory that the rank holds: the constant part dark, what the step's actions hold light.
  void draw_curve(const SimulatedRank& rank, double y) {
    const auto height = [&](int64_t bytes) { return kCurve * static_cast<double>(bytes) / static_cast<double>(most_bytes_); };
    const double floor = y + kCurve, constant = height(rank.constant_bytes);
    std::string points = fmt::format("{:.2f},{:.1f}", x(0), floor - constant);
    int64_t held = 0;
    for (const SimulatedAction& action : rank.actions) {
      points += fmt::format(" {0:.2f},{1:.1f} {0:.2f},{2:.1f}", x(action.end), floor - height(rank.constant_bytes + held),
                            floor - height(rank.constant_bytes + action.held_bytes));
      held = action.held_bytes;
    }
    svg_ += fmt::format("<polygon points=\"{0} {1:.2f},{2:.1f} {3:.2f},{2:.1f}\" fill=\"#f0b8a0\"/>\n", points, x(end_),
                        floor - constant, x(0));
    svg_ += fmt::format("<rect x=\"{}\" y=\"{:.1f}\" width=\"{}\" height=\"{:.1f}\" fill=\"#b09088\"/>\n", kLeft,
                        floor - constant, kWidth, constant);
  }

  static std::vector<Bar> bars(const SimulatedRank& rank) {
    std::vector<Bar> bars;
    for (const SimulatedAction& action : rank.actions) {
      if (action.end <= action.begin) continue;
      const bool continues = !bars.empty() && bars.back().kind == action.kind && bars.back().micro_batch == action.micro_batch &&
                             action.begin - bars.back().end < 1e-9;
      if (!continues) bars.push_back({action.kind, action.role, action.micro_batch, action.begin, action.end, action.text, ""});
      bars.back().end = action.end;
      bars.back().last = action.text;
    }
    return bars;
  }

  const Simulation& simulation_;
  std::string svg_;
  double end_ = 0;
  int64_t most_bytes_ = 0;
};

}  // namespace

std::string Simulation::picture() const {
  return Picture(*this).draw();
}

}  // namespace zt
