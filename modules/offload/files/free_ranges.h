// Which parts of an array are free. Pure.
#pragma once

#include <cstdint>
#include <map>

namespace zt::offload {

class FreeRanges {
 public:
  // Makes [begin, begin + bytes) free. It must not be free already.
  void add(int64_t begin, int64_t bytes);
  // Takes the first free range of so many bytes. Returns its begin; -1 if there is none.
  int64_t take(int64_t bytes);

 private:
  std::map<int64_t, int64_t> end_of_;  // by begin; no two of them touch
};

}  // namespace zt::offload
