#include "verify.h"

namespace zt::verifier {

namespace {

// Gradients are summed over ranks with other samples, which COUNT must know. Ranks that share work on the same samples are none.
void check_samples(const Subject& subject, Findings& findings) {
  for (int step = 0; step < subject.size(); ++step) {
    if (subject.action(step).kind != Kinds::get().count) continue;
    const std::vector<std::string> known = subject.action(step).sample_axes();
    for (const std::string& axis : known) {
      if (!subject.mesh.has(axis) || subject.mesh.size(axis) == 1 || !subject.model.is_inner(axis)) continue;
      return refuse(
          subject, findings, step,
          "COUNT takes the ranks along '{}' for ones with other samples, but they share the work on the same ones: give "
          "it `samples` without the axis",
          axis);
    }
    for (const UnitPlan& plan : subject.program.units) {
      for (const std::string& axis : plan.sum_axes) {
        if (!subject.mesh.has(axis) || subject.mesh.size(axis) == 1 || subject.model.is_inner(axis)) continue;
        if (std::ranges::find(known, axis) != known.end()) continue;
        return refuse(subject, findings, step,
                      "gradients are summed along '{}', and COUNT does not take its ranks for ones with other "
                      "samples: add the axis to `samples`, or leave that out",
                      axis);
      }
    }
  }
}

// Sums over some ranks, divided by counts of others, would be wrong numbers.
void check_counted(const Subject& subject, Findings& findings) {
  std::vector<std::string> counted, summed;
  int norm = -1;
  for (int step = 0; step < subject.size(); ++step) {
    std::vector<std::string> axes = subject.action(step).axes();
    std::erase_if(axes, [&](const std::string& axis) { return !subject.mesh.has(axis) || subject.mesh.size(axis) == 1; });
    std::ranges::sort(axes);
    if (subject.action(step).kind == Kinds::get().count) {
      counted = std::move(axes);
    } else if (subject.action(step).kind == Kinds::get().norm) {
      summed = std::move(axes);
      norm = step;
    }
  }
  if (norm < 0 || counted == summed) return;
  refuse(subject, findings, norm,
         "COUNT counts the samples of the ranks along {}, and NORM adds up what those along {} have: give both "
         "the same axes",
         joined(counted), joined(summed));
}

}  // namespace

void check_sums(const Subject& subject, Findings& findings) {
  check_samples(subject, findings);
  check_counted(subject, findings);
}

}  // namespace zt::verifier
