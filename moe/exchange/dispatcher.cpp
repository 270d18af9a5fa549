#include "exchange/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <ranges>
#include <string_view>
#include <utility>

#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/rows.h"
#include "zt/base/tensor.h"

namespace zt::moe {

// all_to_all: each row goes to the rank of its expert only. all_gather: each rank gets the tokens of all ranks, and the sums of
// all ranks' experts are added (reduce_scatter). The rows of experts are the same, but sums over experts have another order, that
// of ranks.
static constexpr std::pair<std::string_view, decltype(&make_all_to_all)> kDispatchers[] = {{"all_to_all", make_all_to_all},
                                                                                           {"all_gather", make_all_gather}};

std::vector<std::string> dispatcher_names() {
  const auto names = std::views::keys(kDispatchers);
  return {names.begin(), names.end()};
}

std::shared_ptr<const Dispatcher> make_dispatcher(const ExchangeOptions& options) {
  const auto* row = std::ranges::find(kDispatchers, options.dispatcher, [](const auto& row) { return row.first; });
  if (row == std::end(kDispatchers)) misuse("dispatcher {}", one_of(dispatcher_names())(options.dispatcher));
  const auto named = row->second(options);
  return options.ranks == 1 ? make_all_to_all(options) : named;
}

at::Tensor routes_on_host(const at::Tensor& experts) {
  return as_rows(experts.cpu());
}

int64_t room_of_expert(const at::Tensor& experts, const CapacityOptions& capacity, const ExchangeOptions& options, Mode mode) {
  if (experts.dim() != 3)
    misuse("a capacity needs tokens of samples, [samples, tokens, hidden], got experts {}", describe(experts));
  const bool per_sample = capacity.per == RoomOf::sample;
  const int64_t samples = experts.size(0), tokens = experts.size(1), routes = options.top_k > 0 ? options.top_k : experts.size(2);
  const int64_t room = capacity.rows(mode == Mode::train, per_sample ? tokens : samples * tokens, routes, options.experts);
  return per_sample ? samples * room : room;
}

int64_t padded_rows(const at::Tensor& experts, const ExchangeOptions& options, Mode mode) {
  return options.padding ? room_of_expert(experts, *options.padding, options, mode) : -1;
}

}  // namespace zt::moe
