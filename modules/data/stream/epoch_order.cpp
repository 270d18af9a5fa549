#include "epoch_order.h"

#include <optional>

#include "permutation.h"

namespace zt::data {

std::vector<Place> EpochOrder::places(std::span<const int64_t> numbers) const {
  std::vector<Place> places;
  std::optional<Permutation> permutation;  // of the epoch of the last place
  for (const int64_t number : numbers) {
    Place place{number / samples_, number % samples_};
    if (shuffle_) {
      if (!permutation || places.back().epoch != place.epoch) {
        permutation.emplace(samples_,
                            Philox::keyed(static_cast<uint64_t>(seed_), Purpose::shuffle, static_cast<uint64_t>(place.epoch)));
      }
      place.sample = (*permutation)(place.sample);
    }
    places.push_back(place);
  }
  return places;
}

StreamOptions with_epoch_order(StreamOptions options) {
  options.order["shuffle"] = options.shuffle;
  if (options.shuffle) options.order["seed"] = options.seed;
  return options;
}

}  // namespace zt::data
