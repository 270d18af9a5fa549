#include "zt/comm/comm.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "zt/base/words.h"
#include "zt/comm/channel.h"

namespace zt {

ZT_DEFINE_OBJECT(Communicator, "Communicator")
ZT_DEFINE_OBJECT(Work, "Work")
ZT_DEFINE_OBJECT(Channel, "Channel")

Work::State::~State() = default;
Channel::~Channel() = default;

namespace {

class Continued final : public Work::State {
 public:
  Continued(Work work, std::function<void()> finish) : work_(std::move(work)), finish_(std::move(finish)) {}

  bool done() override { return work_.done(); }
  void wait() override {
    work_.wait();
    finish();
  }
  void synchronize() override {
    work_.synchronize();
    finish();
  }

 private:
  void finish() {
    const at::AutoGradMode no_grad(false);
    if (const auto call = std::exchange(finish_, nullptr)) call();
  }

  Work work_;
  std::function<void()> finish_;  // null once it has run
};

class Joined final : public Work::State {
 public:
  explicit Joined(std::vector<Work> works) : works_(std::move(works)) {}

  bool done() override { return std::ranges::all_of(works_, &Work::done); }
  void wait() override { std::ranges::for_each(works_, &Work::wait); }
  void synchronize() override { std::ranges::for_each(works_, &Work::synchronize); }

 private:
  std::vector<Work> works_;
};

}  // namespace

Work all_of(std::vector<Work> works) {
  if (works.size() == 1) return std::move(works.front());
  return works.empty() ? Work() : Work(std::make_shared<Joined>(std::move(works)));
}

Work then(Work work, std::function<void()> finish) {
  return Work(std::make_shared<Continued>(std::move(work), std::move(finish)));
}

Communicator::~Communicator() = default;

ReduceOp parse_reduce_op(const std::string& name) {
  return parse_word<ReduceOp>(name, "unknown reduction");
}

// All ranks learn if the value of one of them cannot be written: a negative length says that an error's text follows.
std::vector<Value> Communicator::all_gather_values(const Value& value, const std::string& what) {
  std::string text;
  std::exception_ptr failure;
  try {
    text = nlohmann::json::array({what, value.to_json()}).dump();
  } catch (const std::exception& error) {
    failure = std::current_exception();
    text = error.what();
  }
  auto length = at::empty({1}, at::kLong);
  length.data_ptr<int64_t>()[0] = static_cast<int64_t>(text.size()) * (failure ? -1 : 1);
  auto lengths = at::empty({size()}, at::kLong);
  all_gather(lengths, length);
  const int64_t longest = lengths.abs().max().item<int64_t>();
  auto mine = at::zeros({longest}, at::kByte);
  std::memcpy(mine.data_ptr(), text.data(), text.size());
  auto all = at::empty({size() * longest}, at::kByte);
  all_gather(all, mine);
  if (failure) std::rethrow_exception(failure);
  std::vector<Value> values;
  std::string first;  // what rank 0 does
  for (int r = 0; r < size(); ++r) {
    const char* start = reinterpret_cast<const char*>(all.data_ptr<uint8_t>()) + r * longest;
    const int64_t count = lengths.data_ptr<int64_t>()[r];
    if (count < 0) misuse("the value of rank {} of '{}' cannot be shared: {}", r, name(), std::string_view(start, -count));
    const nlohmann::json told = nlohmann::json::parse(start, start + count);
    if (r > 0 && told[0] != first)
      misuse("rank 0 of '{}' {}, and rank {} {}: all ranks have to make the same calls in the same order", name(), first, r,
             told[0].get<std::string>());
    first = told[0];
    values.push_back(Value::from_json(told[1]));
  }
  return values;
}

}  // namespace zt
