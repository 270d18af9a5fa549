#include "zt/gemm_choice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>

#include "gemm.h"
#include "zt/error.h"
#include "zt/isa.h"
#include "zt/tensor.h"

namespace zt {

namespace {

struct Types {
  at::ScalarType dtype;
  bool widens = false;
  bool operator==(const Types&) const = default;
};
constexpr std::array kTypes{Types{at::kFloat}, Types{at::kDouble},         Types{at::kBFloat16},
                            Types{at::kHalf},  Types{at::kBFloat16, true}, Types{at::kHalf, true}};
constexpr std::array kKinds{GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient};
constexpr const char* kKindNames[] = {"forward", "input_gradient", "weight_gradient"};
constexpr int kSizes = 7;

uint8_t size_class(int64_t size) {
  const int power_of_4 = (static_cast<int>(std::bit_width(static_cast<uint64_t>(size))) - 1) / 2;
  return static_cast<uint8_t>(std::clamp(power_of_4 - 2, 0, kSizes - 1));
}
int64_t least_size(uint8_t size) {
  return size == 0 ? 1 : int64_t{1} << (2 * (size + 2));
}

std::vector<GemmClass> all_classes() {
  std::vector<GemmClass> classes;
  for (const GemmKind kind : kKinds) {
    for (const auto& [dtype, widens] : kTypes) {
      for (int i = 0; i < kSizes * kSizes * kSizes; ++i) {
        classes.push_back({kind, dtype, static_cast<uint8_t>(i / (kSizes * kSizes)), static_cast<uint8_t>(i / kSizes % kSizes),
                           static_cast<uint8_t>(i % kSizes), widens});
      }
    }
  }
  return classes;
}

size_t types_index(const GemmClass& c) {
  return static_cast<size_t>(std::ranges::find(kTypes, Types{c.dtype, c.widens}) - kTypes.begin());
}
size_t index_of(const GemmClass& c) {
  return (((static_cast<size_t>(c.kind) * kTypes.size() + types_index(c)) * kSizes + c.m) * kSizes + c.n) * kSizes + c.k;
}

std::string name_of(const Types& types) {
  return dtype_name(types.dtype) + (types.widens ? "_to_float32" : "");
}

const Gemm& provider_of(const std::string& name, at::ScalarType dtype) {
  const Gemm& provider = find_gemm(name);
  if (!provider.takes(at::kCPU, dtype)) {
    misuse("the gemm provider '{}' does not multiply {} matrices on the CPU: choose another for them", name, dtype_name(dtype));
  }
  return provider;
}

// What is in use: a provider for every class. Read by every product, so without a lock.
class Table {
 public:
  Table() { use(default_gemm_choice()); }
  const Gemm& provider(const GemmShape& shape) const {
    return *providers_[index_of(gemm_class(shape))].load(std::memory_order_acquire);
  }
  void use(const GemmChoice& choice) {
    std::vector<const Gemm*> found;
    for (const GemmClass& each : all_classes()) found.push_back(&provider_of(choice.provider(each), each.dtype));
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < found.size(); ++i) providers_[i].store(found[i], std::memory_order_release);
    choice_ = choice;
  }
  GemmChoice choice() const {
    const std::lock_guard lock(mutex_);
    return choice_;
  }
  void request(const std::string& provider) {
    const std::lock_guard lock(mutex_);
    request_ = provider;
  }
  std::string request() const {
    const std::lock_guard lock(mutex_);
    return request_;
  }

 private:
  std::array<std::atomic<const Gemm*>, kKinds.size() * kTypes.size() * kSizes * kSizes * kSizes> providers_{};
  mutable std::mutex mutex_;
  GemmChoice choice_;
  std::string request_ = "default";
};

Table& table() {
  static Table table;
  return table;
}

std::optional<GemmClass> parse_class(const std::string& text) {
  static const auto kNames = [] {
    std::map<std::string, GemmClass> names;
    for (const GemmClass& each : all_classes()) names[name_of(each)] = each;
    return names;
  }();
  const auto found = kNames.find(text);
  return found == kNames.end() ? std::nullopt : std::optional(found->second);
}

// Where "skinny" was measured to be faster than libraries, which pack their operands.
bool has_few_rows(const GemmClass& c) {
  const int from_256 = size_class(256), from_1024 = size_class(1024);
  switch (c.kind) {
    case GemmKind::forward:
      return c.m == 0 && c.n + c.k >= from_256 + from_1024;
    case GemmKind::input_gradient:
      return c.m == 0 && c.n >= from_1024 && c.k >= from_256;
    case GemmKind::weight_gradient:
      return c.k == 0 && c.m >= from_1024 && c.n >= from_256;
  }
  return false;
}
std::string few_rows_name(at::ScalarType dtype) {
  return dtype_name(dtype) + "_of_few_rows";
}

std::string& usual(GemmChoice& choice, const Types& types) {
  return (types.widens ? choice.widening : choice.by_dtype)[types.dtype];
}

}  // namespace

const Gemm& chosen_gemm(const GemmShape& shape) {
  return table().provider(shape);
}

GemmClass gemm_class(const GemmShape& shape) {
  return {shape.kind, shape.dtype, size_class(shape.m), size_class(shape.n), size_class(shape.k), shape.widens};
}

std::string name_of(const GemmClass& c) {
  return fmt::format("{}/{}/{}x{}x{}", kKindNames[static_cast<size_t>(c.kind)], name_of(Types{c.dtype, c.widens}),
                     least_size(c.m), least_size(c.n), least_size(c.k));
}

const std::string& GemmChoice::provider(const GemmClass& gemm_class) const {
  const auto found = by_class.find(gemm_class);
  if (found != by_class.end()) return found->second;
  const auto of_few = few_rows.find(gemm_class.dtype);
  if (of_few != few_rows.end() && has_few_rows(gemm_class)) return of_few->second;
  const auto& of_types = gemm_class.widens ? widening : by_dtype;
  const auto usual = of_types.find(gemm_class.dtype);
  if (usual == of_types.end())
    misuse("this choice of gemm providers names none for {}", name_of(Types{gemm_class.dtype, gemm_class.widens}));
  return usual->second;
}

Value GemmChoice::to_value() const {
  Value::Table table;
  for (const auto& [dtype, provider] : by_dtype) table[name_of(Types{dtype})] = provider;
  for (const auto& [dtype, provider] : widening) table[name_of(Types{dtype, true})] = provider;
  for (const auto& [dtype, provider] : few_rows) table[few_rows_name(dtype)] = provider;
  for (const auto& [gemm_class, provider] : by_class) table[name_of(gemm_class)] = provider;
  return table;
}

GemmChoice GemmChoice::from_value(const Value& value) {
  const auto* table = value.get_if<Value::Table>();
  if (!table) misuse("a choice of gemm providers is a table, got {}", value.type_name());
  GemmChoice choice;
  for (const auto& [key, named] : *table) {
    const auto* provider = named.get_if<std::string>();
    if (!provider) misuse("the gemm provider of '{}' is a name, got {}", key, named.type_name());
    const auto types = std::ranges::find_if(kTypes, [&](const Types& each) { return name_of(each) == key; });
    if (types != kTypes.end()) {
      usual(choice, *types) = *provider;
      continue;
    }
    const auto of_few = std::ranges::find_if(kTypes, [&](const Types& each) { return few_rows_name(each.dtype) == key; });
    if (of_few != kTypes.end()) {
      choice.few_rows[of_few->dtype] = *provider;
      continue;
    }
    const auto gemm_class = parse_class(key);
    if (!gemm_class) misuse("'{}' in a choice of gemm providers is no class of products such as '{}'", key, name_of(GemmClass{}));
    choice.by_class[*gemm_class] = *provider;
  }
  return choice;
}

GemmChoice default_gemm_choice() {
  GemmChoice choice;
  const bool has_mkl = has_gemm("mkl");
  for (const Types& types : kTypes) usual(choice, types) = types.widens && has_mkl ? "mkl" : "aten";
  if (!has_mkl) return choice;
  choice.by_dtype[at::kHalf] = "mkl";
  if (!has_products_of(at::kBFloat16)) choice.by_dtype[at::kBFloat16] = "mkl";
  if (supported_isas().back() != Isa::avx512) return choice;
  choice.few_rows[at::kFloat] = "skinny";
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    if (!has_products_of(dtype)) choice.few_rows[dtype] = "skinny";
  }
  return choice;
}

GemmChoice fixed_gemm_choice(const std::string& provider) {
  const Gemm& fixed = find_gemm(provider);
  GemmChoice choice = default_gemm_choice();
  bool takes_any = false;
  for (const Types& types : kTypes) {
    if (!fixed.takes(at::kCPU, types.dtype)) continue;
    usual(choice, types) = provider;
    choice.few_rows.erase(types.dtype);
    takes_any = true;
  }
  if (!takes_any) misuse("the gemm provider '{}' multiplies nothing on the CPU, where alone there is a choice", provider);
  return choice;
}

void use_gemm_choice(const GemmChoice& choice) {
  table().use(choice);
}

GemmChoice gemm_choice() {
  return table().choice();
}

void request_gemm(const std::string& provider) {
  if (provider == "auto" && gemm_request() == "auto") return;
  use_gemm_choice(provider == "default" || provider == "auto" ? default_gemm_choice() : fixed_gemm_choice(provider));
  table().request(provider);
}

std::string gemm_request() {
  return table().request();
}

}  // namespace zt
