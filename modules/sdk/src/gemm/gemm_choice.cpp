#include "zt/gemm/gemm_choice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>

#include "gemm.h"
#include "zt/base/error.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt {

namespace {

constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

// Returns the class of a size. Classes grow by a factor of 4: 0 is below 64, 1 from 64, 2 from 256, and so on to 6 from 65536.
int size_class(int64_t size) {
  const int power_of_4 = (static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) - 1) / 2;
  return std::clamp(power_of_4 - 2, 0, 6);
}

// Returns whether a GEMM belongs to the groups of few rows. In measurements the provider "skinny" was faster for these shapes
// than libraries, which pack their operands.
bool has_few_rows(const GemmShape& shape) {
  constexpr int kFrom256 = 2, kFrom1024 = 3;
  const int m = size_class(shape.m), n = size_class(shape.n), k = size_class(shape.k);
  switch (shape.kind) {
    case GemmKind::forward:
      return m == 0 && n + k >= kFrom256 + kFrom1024;
    case GemmKind::input_gradient:
      return m == 0 && n >= kFrom1024 && k >= kFrom256;
    case GemmKind::weight_gradient:
      return k == 0 && m >= kFrom1024 && n >= kFrom256;
  }
  return false;
}

size_t index_of(const GemmGroup& group) {
  const auto dtype = static_cast<size_t>(std::ranges::find(kDtypes, group.dtype) - kDtypes.begin());
  return dtype * 4 + (group.widens ? 2 : 0) + (group.few_rows ? 1 : 0);
}

const Gemm& provider_of(const GemmChoice& choice, const GemmGroup& group) {
  const auto name = choice.find(group);
  if (name == choice.end()) misuse("the choice of GEMM providers names none for {}", name_of(group));
  const Gemm& provider = find_gemm(name->second);
  if (!provider.takes(at::kCPU, group.dtype)) {
    misuse("the gemm provider '{}' does not multiply {} matrices on the CPU: choose another for them", name->second,
           dtype_name(group.dtype));
  }
  return provider;
}

GemmChoice aten_everywhere() {
  GemmChoice choice;
  for (const GemmGroup& group : all_gemm_groups()) choice[group] = "aten";
  return choice;
}

// The choice in use. Every GEMM reads it, without a lock.
class ProviderTable {
 public:
  ProviderTable() { use(default_); }

  const Gemm& provider(const GemmGroup& group) const { return *providers_[index_of(group)].load(std::memory_order_acquire); }

  void use(const GemmChoice& choice) {
    std::vector<const Gemm*> found;
    for (const GemmGroup& group : all_gemm_groups()) found.push_back(&provider_of(choice, group));
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < found.size(); ++i) {
      providers_[index_of(all_gemm_groups()[i])].store(found[i], std::memory_order_release);
    }
    choice_ = choice;
  }
  GemmChoice choice() const {
    const std::lock_guard lock(mutex_);
    return choice_;
  }
  void set_default(const GemmChoice& choice) {
    use(choice);
    const std::lock_guard lock(mutex_);
    default_ = choice;
  }
  GemmChoice default_choice() const {
    const std::lock_guard lock(mutex_);
    return default_;
  }

 private:
  std::array<std::atomic<const Gemm*>, kDtypes.size() * 4> providers_{};
  mutable std::mutex mutex_;
  GemmChoice choice_, default_ = aten_everywhere();
};

ProviderTable& provider_table() {
  static ProviderTable table;
  return table;
}

// Returns "'aten' on ranks 0, 2, 'skinny' on rank 1", or an empty string if all ranks have the same provider.
std::string providers_by_rank(const std::vector<const Value::Table*>& ranks, const std::string& group) {
  std::map<std::string, std::vector<size_t>> ranks_of;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto named = ranks[rank]->find(group);
    ranks_of[named == ranks[rank]->end() ? "none" : *named->second.get_if<std::string>()].push_back(rank);
  }
  if (ranks_of.size() == 1) return "";
  std::vector<std::string> texts;
  for (const auto& [name, numbers] : ranks_of) {
    texts.push_back(fmt::format("'{}' on rank{} {}", name, numbers.size() == 1 ? "" : "s", fmt::join(numbers, ", ")));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

const Gemm& chosen_gemm(const GemmShape& shape) {
  return provider_table().provider(gemm_group(shape));
}

GemmGroup gemm_group(const GemmShape& shape) {
  return {shape.dtype, shape.widens, has_few_rows(shape)};
}

const std::vector<GemmGroup>& all_gemm_groups() {
  static const auto groups = [] {
    std::vector<GemmGroup> all;
    for (const at::ScalarType dtype : kDtypes) {
      for (const bool widens : {false, true}) {
        if (widens && (dtype == at::kFloat || dtype == at::kDouble)) continue;
        for (const bool few_rows : {false, true}) all.push_back({dtype, widens, few_rows});
      }
    }
    std::ranges::sort(all);
    return all;
  }();
  return groups;
}

std::string name_of(const GemmGroup& group) {
  return dtype_name(group.dtype) + (group.widens ? "_to_float32" : "") + (group.few_rows ? "_of_few_rows" : "");
}

Value to_value(const GemmChoice& choice) {
  Value::Table table;
  for (const auto& [group, provider] : choice) table[name_of(group)] = provider;
  return table;
}

GemmChoice default_gemm_choice() {
  return provider_table().default_choice();
}

void set_default_gemm_choice(const GemmChoice& choice) {
  provider_table().set_default(choice);
}

GemmChoice fixed_gemm_choice(const std::string& provider) {
  GemmChoice choice = default_gemm_choice();
  if (provider == "default") return choice;
  const Gemm& fixed = find_gemm(provider);
  bool takes_any = false;
  for (auto& [group, name] : choice) {
    if (!fixed.takes(at::kCPU, group.dtype)) continue;
    name = provider;
    takes_any = true;
  }
  if (!takes_any)
    misuse("the gemm provider '{}' multiplies nothing on the CPU, and only there providers can be chosen", provider);
  return choice;
}

void use_gemm_choice(const GemmChoice& choice) {
  provider_table().use(choice);
}

GemmChoice gemm_choice() {
  return provider_table().choice();
}

void check_gemm_choices_alike(const std::vector<Value>& ranks) {
  std::vector<const Value::Table*> choices;
  for (const Value& rank : ranks) choices.push_back(rank.get_if<Value::Table>());
  std::string differences;
  for (const GemmGroup& group : all_gemm_groups()) {
    const std::string name = name_of(group), providers = providers_by_rank(choices, name);
    if (!providers.empty()) differences += fmt::format("\n  {}: {}", name, providers);
  }
  if (differences.empty()) return;
  misuse(
      "the ranks multiply matrices by different providers, so they would compute different bits: run on machines of one kind, or "
      "name one provider on every rank, such as zt.gemm{{provider = \"aten\"}}{}",
      differences);
}

std::vector<std::string> differing_gemm_groups(const Value& saved) {
  std::vector<std::string> differing;
  const auto* names = saved.get_if<Value::Table>();
  if (!names) return differing;
  for (const auto& [group, provider] : gemm_choice()) {
    const auto named = names->find(name_of(group));
    if (named == names->end()) continue;
    const auto* name = named->second.get_if<std::string>();
    if (!name || *name != provider) differing.push_back(name_of(group));
  }
  return differing;
}

namespace {

thread_local const Gemm* scoped_gemm = nullptr;

}  // namespace

GemmScope::GemmScope(const std::string& provider) : before_(std::exchange(scoped_gemm, &find_gemm(provider))) {}

GemmScope::~GemmScope() {
  scoped_gemm = before_;
}

const Gemm* GemmScope::current() {
  return scoped_gemm;
}

at::Tensor linear_by_scope(const at::Tensor& x, const at::Tensor& w, const std::optional<at::Tensor>& bias) {
  const Gemm* gemm_of_scope = GemmScope::current();
  const bool can_run = gemm_of_scope && !at::GradMode::is_enabled() && x.dim() > 0 && w.dim() == 2 && is_for_host(x) &&
                       x.scalar_type() == w.scalar_type() && gemm_of_scope->takes(at::kCPU, x.scalar_type());
  if (!can_run) return at::linear(x, w, bias);
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = w.size(0);
  const at::Tensor out = bias ? bias->expand(sizes).clone(at::MemoryFormat::Contiguous) : at::empty(sizes, x.options());
  gemm(GemmKind::forward, as_rows(x), w.t(), out.view({-1, w.size(0)}), bias ? 1 : 0);
  return out;
}

}  // namespace zt
