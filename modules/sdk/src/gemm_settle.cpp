// Which provider multiplies what, agreed by all ranks and kept for the process.
#include <algorithm>

#include "zt/error.h"
#include "zt/gemm_choice.h"
#include "zt/log.h"
#include "zt/tensor.h"

namespace zt {

namespace {

Value to_value(const GemmShape& shape) {
  return Value::List{static_cast<int>(shape.kind), dtype_name(shape.dtype), shape.m, shape.n, shape.k, shape.widens};
}
GemmShape to_shape(const Value& value) {
  const auto& list = *value.get_if<Value::List>();
  const auto number = [&](size_t i) { return *list[i].get_if<int64_t>(); };
  return {static_cast<GemmKind>(number(0)), parse_dtype(*list[1].get_if<std::string>()), number(2), number(3), number(4),
          *list[5].get_if<bool>()};
}

Value to_value(const GemmPart& part) {
  Value::List shapes;
  for (const GemmShape& shape : part.shapes) shapes.push_back(to_value(shape));
  return Value::List{part.request, part.choice.to_value(), shapes};
}
GemmPart to_part(const Value& value) {
  const auto& list = *value.get_if<Value::List>();
  GemmPart part{*list[0].get_if<std::string>(), GemmChoice::from_value(list[1]), {}};
  for (const Value& shape : *list[2].get_if<Value::List>()) part.shapes.push_back(to_shape(shape));
  return part;
}

// What is named stays; and a choice that names a dtype says whether few rows of it are another matter.
void add_unnamed(GemmChoice& choice, const GemmChoice& more) {
  for (const auto& [dtype, provider] : more.few_rows) {
    if (!choice.by_dtype.contains(dtype)) choice.few_rows.emplace(dtype, provider);
  }
  choice.by_dtype.insert(more.by_dtype.begin(), more.by_dtype.end());
  choice.widening.insert(more.widening.begin(), more.widening.end());
  choice.by_class.insert(more.by_class.begin(), more.by_class.end());
}

GemmPart join_over(Communicator& ranks, const GemmPart& mine) {
  std::vector<GemmPart> parts;
  for (const Value& part : ranks.all_gather_values(to_value(mine))) parts.push_back(to_part(part));
  return join(parts);
}

// Ranks that only wait learn of an error too.
GemmChoice choose_on_first(const GemmPart& all, Communicator& ranks, const GemmTrial& trial) {
  Value outcome;
  if (ranks.rank() == 0) {
    try {
      outcome = choose_gemm(all.shapes, trial, all.choice).to_value();
    } catch (const std::exception& error) {
      outcome = describe(error);
    }
  }
  const Value first = ranks.all_gather_values(outcome)[0];
  if (const auto* error = first.get_if<std::string>()) fault("the trial of gemm providers on rank 0 failed: {}", *error);
  return GemmChoice::from_value(first);
}

}  // namespace

GemmPart join(const std::vector<GemmPart>& ranks) {
  GemmPart all = ranks.at(0);
  for (size_t rank = 1; rank < ranks.size(); ++rank) {
    const GemmPart& part = ranks[rank];
    if (part.request != all.request) {
      misuse(
          "rank 0 asks for the gemm provider '{}' and rank {} for '{}', but all ranks multiply by the same: ask alike on all ranks",
          all.request, rank, part.request);
    }
    add_unnamed(all.choice, part.choice);
    all.shapes.insert(all.shapes.end(), part.shapes.begin(), part.shapes.end());
  }
  return all;
}

GemmChoice settle_products(const std::vector<GemmShape>& planned, Communicator* ranks, const GemmTrial& trial) {
  const GemmPart mine{gemm_request(), gemm_choice(), planned};
  const GemmPart all = ranks ? join_over(*ranks, mine) : mine;
  const bool is_new =
      std::ranges::any_of(all.shapes, [&](const GemmShape& shape) { return !all.choice.by_class.contains(gemm_class(shape)); });
  GemmChoice choice = all.choice;
  if (all.request == "auto" && is_new) {
    choice = ranks ? choose_on_first(all, *ranks, trial) : choose_gemm(all.shapes, trial, all.choice);
  }
  if (choice != mine.choice) use_gemm_choice(choice);
  return choice;
}

GemmChoice settle_products(const std::vector<GemmShape>& planned, Communicator* ranks, const World& world) {
  return settle_products(planned, ranks, timed_gemm_trial([&](const std::string& line) { log(LogLevel::info, world, line); }));
}

std::vector<std::string> adopt_gemm_choice(const GemmChoice& saved) {
  GemmChoice choice = gemm_choice();
  if (choice.by_class.empty()) choice = {};
  add_unnamed(choice, saved);
  add_unnamed(choice, default_gemm_choice());
  use_gemm_choice(choice);
  const Value used_value = choice.to_value(), wanted = saved.to_value();
  const auto& used = *used_value.get_if<Value::Table>();
  std::vector<std::string> kept;
  for (const auto& [name, provider] : *wanted.get_if<Value::Table>()) {
    const auto found = used.find(name);
    const bool is_used = found != used.end() && *found->second.get_if<std::string>() == *provider.get_if<std::string>();
    if (!is_used) kept.push_back(name);
  }
  return kept;
}

}  // namespace zt
