#include "together.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "zt/base/error.h"
#include "zt/process/log.h"

namespace zt::ckpt {

namespace {

at::Tensor bytes_of(const std::string& text, int64_t size) {
  at::Tensor tensor = at::zeros({size}, at::kByte);
  std::ranges::copy(text, static_cast<char*>(tensor.mutable_data_ptr()));
  return tensor;
}
std::string text_of(const at::Tensor& tensor, int64_t begin, int64_t size) {
  return {static_cast<const char*>(tensor.const_data_ptr()) + begin, static_cast<size_t>(size)};
}
at::Tensor number(int64_t value) {
  return at::full({1}, value, at::kLong);
}

}  // namespace

std::vector<std::string> Ranks::collect(const std::string& bytes, To to) const {
  if (size() == 1) return {bytes};
  at::Tensor lengths = at::empty({size()}, at::kLong);
  all_->all_gather(lengths, number(static_cast<int64_t>(bytes.size())));
  const int64_t longest = lengths.max().item<int64_t>();
  const at::Tensor mine = bytes_of(bytes, longest);
  const bool is_receiver = to == To::all || rank() == 0;
  at::Tensor all = is_receiver ? at::empty({size() * longest}, at::kByte) : at::Tensor();
  if (to == To::all) all_->all_gather(all, mine);
  else all_->gather(all, mine, 0);
  std::vector<std::string> texts;
  for (int r = 0; is_receiver && r < size(); ++r) texts.push_back(text_of(all, r * longest, lengths[r].item<int64_t>()));
  return texts;
}

std::string Ranks::scatter(const std::vector<std::string>& parts) const {
  if (size() == 1) return parts.at(0);
  at::Tensor lengths, mine = at::empty({2}, at::kLong), out;
  if (rank() == 0) {
    int64_t longest = 0;
    for (const auto& part : parts) longest = std::max(longest, static_cast<int64_t>(part.size()));
    lengths = at::empty({size(), 2}, at::kLong);
    out = at::zeros({size() * longest}, at::kByte);
    for (int r = 0; r < size(); ++r) {
      lengths[r][0] = static_cast<int64_t>(parts.at(r).size());
      lengths[r][1] = longest;
      std::ranges::copy(parts.at(r), static_cast<char*>(out.mutable_data_ptr()) + r * longest);
    }
    lengths = lengths.view({-1});
  }
  all_->scatter(mine, lengths, 0);
  at::Tensor bytes = at::empty({mine[1].item<int64_t>()}, at::kByte);
  all_->scatter(bytes, out, 0);
  return text_of(bytes, 0, mine[0].item<int64_t>());
}

std::string Ranks::broadcast(const std::string& bytes) const {
  if (size() == 1) return bytes;
  at::Tensor length = number(static_cast<int64_t>(bytes.size()));
  all_->broadcast(length, 0);
  const int64_t size = length.item<int64_t>();
  at::Tensor text = rank() == 0 ? bytes_of(bytes, size) : at::empty({size}, at::kByte);
  all_->broadcast(text, 0);
  return text_of(text, 0, size);
}

void Ranks::max(std::vector<uint8_t>& flags) const {
  if (size() == 1 || flags.empty()) return;
  at::Tensor tensor = at::from_blob(flags.data(), {static_cast<int64_t>(flags.size())}, at::kByte);
  all_->all_reduce(tensor, tensor, ReduceOp::max);
}

bool Ranks::any(bool flag) const {
  std::vector<uint8_t> flags{static_cast<uint8_t>(flag)};
  max(flags);
  return flags[0] != 0;
}

void Ranks::together(const std::function<void()>& action) const {
  // 'm' for Misuse or 'f' for Fault, then the message; empty if the action succeeded.
  std::string outcome;
  try {
    action();
  } catch (const Misuse& error) {
    outcome = fmt::format("m{}", describe(error));
  } catch (const Aborted&) {
    throw;
  } catch (const std::exception& error) {
    outcome = fmt::format("f{}", describe(error));
  }
  int failed = 0, at = 0;
  bool is_misuse = true;
  const auto outcomes = collect(outcome, To::all);
  for (int r = 0; r < size(); ++r) {
    if (outcomes[r].empty()) continue;
    is_misuse = is_misuse && outcomes[r][0] == 'm';
    if (failed++ == 0) at = r;
  }
  if (failed == 0) return;
  const std::string first = outcomes[at].substr(1);
  const std::string text =
      failed == size() ? first : fmt::format("rank {}: {} ({} of {} ranks failed)", at, first, failed, size());
  if (is_misuse) throw Misuse(text);
  throw Fault(text);
}

void Ranks::warn(const std::string& text) const {
  if (rank() > 0) return;
  World place;
  place.size = size();
  log(LogLevel::warn, place, text);
}

void Ranks::on_rank_zero(const std::function<void()>& action) const {
  together([&] {
    if (rank() == 0) action();
  });
}

Ranks Ranks::duplicate(const std::string& name) const {
  return all_ ? Ranks(all_->duplicate(name)) : Ranks();
}

void Ranks::set_timeout(std::chrono::milliseconds timeout) const {
  if (all_) all_->set_timeout(timeout);
}

}  // namespace zt::ckpt
