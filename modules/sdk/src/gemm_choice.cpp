#include "zt/gemm_choice.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <optional>

#include "gemm.h"
#include "zt/error.h"
#include "zt/log.h"
#include "zt/tensor.h"

namespace zt {

namespace {

constexpr std::array kDtypes{at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};
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
    for (const at::ScalarType dtype : kDtypes) {
      for (int i = 0; i < kSizes * kSizes * kSizes; ++i) {
        classes.push_back({kind, dtype, static_cast<uint8_t>(i / (kSizes * kSizes)), static_cast<uint8_t>(i / kSizes % kSizes),
                           static_cast<uint8_t>(i % kSizes)});
      }
    }
  }
  return classes;
}

size_t dtype_index(at::ScalarType dtype) {
  return static_cast<size_t>(std::ranges::find(kDtypes, dtype) - kDtypes.begin());
}
size_t index_of(const GemmClass& c) {
  return (((static_cast<size_t>(c.kind) * kDtypes.size() + dtype_index(c.dtype)) * kSizes + c.m) * kSizes + c.n) * kSizes + c.k;
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
  std::array<std::atomic<const Gemm*>, kKinds.size() * kDtypes.size() * kSizes * kSizes * kSizes> providers_{};
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

bool has_bf16_instructions() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512bf16");
#else
  return true;
#endif
}

Value to_value(const GemmShape& shape) {
  return Value::List{static_cast<int>(shape.kind), dtype_name(shape.dtype), shape.m, shape.n, shape.k};
}
GemmShape to_shape(const Value& value) {
  const auto& list = *value.get_if<Value::List>();
  const auto number = [&](size_t i) { return *list[i].get_if<int64_t>(); };
  return {static_cast<GemmKind>(number(0)), parse_dtype(*list[1].get_if<std::string>()), number(2), number(3), number(4)};
}

std::vector<GemmShape> of_all_ranks(const std::vector<GemmShape>& planned, Communicator& ranks) {
  Value::List mine;
  for (const GemmShape& shape : planned) mine.push_back(to_value(shape));
  std::vector<GemmShape> all;
  for (const Value& rank : ranks.all_gather_values(mine)) {
    for (const Value& shape : *rank.get_if<Value::List>()) all.push_back(to_shape(shape));
  }
  return all;
}

}  // namespace

const Gemm& chosen_gemm(const GemmShape& shape) {
  return table().provider(shape);
}

GemmClass gemm_class(const GemmShape& shape) {
  return {shape.kind, shape.dtype, size_class(shape.m), size_class(shape.n), size_class(shape.k)};
}

std::string name_of(const GemmClass& c) {
  return fmt::format("{}/{}/{}x{}x{}", kKindNames[static_cast<size_t>(c.kind)], dtype_name(c.dtype), least_size(c.m),
                     least_size(c.n), least_size(c.k));
}

const std::string& GemmChoice::provider(const GemmClass& gemm_class) const {
  const auto found = by_class.find(gemm_class);
  if (found != by_class.end()) return found->second;
  const auto of_dtype = by_dtype.find(gemm_class.dtype);
  if (of_dtype == by_dtype.end()) misuse("this choice of gemm providers names none for {}", dtype_name(gemm_class.dtype));
  return of_dtype->second;
}

Value GemmChoice::to_value() const {
  Value::Table table;
  for (const auto& [dtype, provider] : by_dtype) table[dtype_name(dtype)] = provider;
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
    const auto dtype = std::ranges::find_if(kDtypes, [&](at::ScalarType each) { return dtype_name(each) == key; });
    if (dtype != kDtypes.end()) {
      choice.by_dtype[*dtype] = *provider;
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
  for (const at::ScalarType dtype : kDtypes) choice.by_dtype[dtype] = "aten";
  if (!has_gemm("mkl")) return choice;
  choice.by_dtype[at::kHalf] = "mkl";
  if (!has_bf16_instructions()) choice.by_dtype[at::kBFloat16] = "mkl";
  return choice;
}

GemmChoice fixed_gemm_choice(const std::string& provider) {
  const Gemm& fixed = find_gemm(provider);
  GemmChoice choice = default_gemm_choice();
  bool takes_any = false;
  for (const at::ScalarType dtype : kDtypes) {
    if (!fixed.takes(at::kCPU, dtype)) continue;
    choice.by_dtype[dtype] = provider;
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
  if (provider == "default") use_gemm_choice(default_gemm_choice());
  else if (provider != "auto") use_gemm_choice(fixed_gemm_choice(provider));
  table().request(provider);
}

std::string gemm_request() {
  return table().request();
}

GemmChoice settle_gemm(const std::vector<GemmShape>& planned, Communicator& ranks, const World& world) {
  const std::vector<GemmShape> shapes = of_all_ranks(planned, ranks);
  GemmChoice choice = gemm_choice();
  if (ranks.rank() == 0 && gemm_request() == "auto") {
    choice = choose_gemm(shapes, timed_gemm_trial([&](const std::string& line) { log(LogLevel::info, world, line); }));
  }
  choice = GemmChoice::from_value(ranks.all_gather_values(choice.to_value())[0]);
  use_gemm_choice(choice);
  return choice;
}

}  // namespace zt
