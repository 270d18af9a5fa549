#include "zt/reshard/reshard.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace zt {

namespace {

// Elements [begin, end) of some linear order of elements. Element `begin` is element `place` of region `source`.
struct RegionInterval {
  int64_t begin, end, place;
  int32_t source;
};

// Regions as intervals of one linear order.
struct IntervalLine {
  std::vector<RegionInterval> saved, wanted;
};

// A box of saved region `source`. Its element i in row-major order is element place + i of that region.
struct SavedBox {
  Box box;
  int64_t place;
  int32_t source;
};

int64_t box_extent(const Box& box, size_t d) {
  return box.end[d] - box.begin[d];
}

// Returns the number that element `index` of a box has in the row-major order of the tensor.
int64_t offset_in_tensor(const std::vector<int64_t>& shape, const Box& box, int64_t index) {
  int64_t offset = 0, row = 1;
  for (size_t d = shape.size(); d-- > 0;) {
    offset += (box.begin[d] + index % box_extent(box, d)) * row;
    index /= box_extent(box, d);
    row *= shape[d];
  }
  return offset;
}

// True if the box's elements are contiguous in the tensor's row-major order.
bool is_flat_box(const std::vector<int64_t>& shape, const Box& box) {
  size_t d = 0;
  while (d < shape.size() && box_extent(box, d) == 1) ++d;
  for (++d; d < shape.size(); ++d) {
    if (box_extent(box, d) != shape[d]) return false;
  }
  return true;
}

// Returns intervals in the order of the wanted region's boxes: the wanted region, and the saved regions with the same boxes.
IntervalLine line_of_boxes(const std::vector<Region>& saved, const Region& wanted) {
  const int64_t end = wanted.first + wanted.count;
  IntervalLine line{{}, {{wanted.first, end, 0, 0}}};
  for (size_t i = 0; i < saved.size(); ++i) {
    const Region& region = saved[i];
    if (region.first < end && region.first + region.count > wanted.first && region.boxes == wanted.boxes)
      line.saved.push_back({region.first, region.first + region.count, 0, static_cast<int32_t>(i)});
  }
  return line;
}

// Appends the region's parts that are intervals of the tensor's row-major order. Returns false if other parts remain.
bool append_flat(const std::vector<int64_t>& shape, const Region& region, size_t source, std::vector<RegionInterval>& out) {
  bool is_all = true;
  for_each_box_part(region, [&](const Box& box, int64_t begin, int64_t end, int64_t place) {
    is_all = is_all && is_flat_box(shape, box);
    if (!is_flat_box(shape, box)) return;
    const int64_t start = offset_in_tensor(shape, box, begin);
    out.push_back({start, start + end - begin, place, static_cast<int32_t>(source)});
  });
  return is_all;
}

// Fills `line` with all regions as intervals of the tensor's row-major order. Returns false if some are not intervals; then
// `line` has those that are, and no saved region if the wanted one is not an interval.
bool line_of_tensor(const std::vector<int64_t>& shape, const std::vector<Region>& saved, const Region& wanted,
                    IntervalLine& line) {
  line = {};
  bool is_all = append_flat(shape, wanted, 0, line.wanted);
  if (!is_all) return false;
  for (size_t i = 0; i < saved.size(); ++i) is_all = append_flat(shape, saved[i], i, line.saved) && is_all;
  return is_all;
}

CopyList copy_line(IntervalLine& line, int64_t count) {
  std::ranges::sort(line.saved, {}, [](const RegionInterval& each) { return std::tuple(each.begin, -each.end, each.source); });
  CopyList copies{{}, count};
  for (const RegionInterval& wanted : line.wanted) {
    int64_t done = wanted.begin;  // elements before it are copied, or no saved region has them
    for (const RegionInterval& saved : line.saved) {
      const int64_t begin = std::max(done, saved.begin), end = std::min(wanted.end, saved.end);
      if (begin >= end) continue;
      copies.runs.push_back(
          {saved.source, saved.place + begin - saved.begin, wanted.place + begin - wanted.begin, end - begin, 1, 0, 0});
      copies.missing -= end - begin;
      done = end;
    }
  }
  return copies;
}

// Repeats the runs from number `begin` on, so that each occurs `times` times, `from` and `to` elements apart.
void repeat_runs(std::vector<CopyRun>& runs, size_t begin, int64_t times, int64_t from, int64_t to) {
  const size_t end = runs.size();
  for (int64_t t = 1; t < times; ++t) {
    for (size_t i = begin; i < end; ++i) {
      CopyRun run = runs[i];
      run.from += t * from;
      run.to += t * to;
      runs.push_back(run);
    }
  }
}

// The runs that copy `part` of the box `from` to the same part of the box `to`.
void add_runs(const SavedBox& from, const PlacedBox& to, const Box& part, std::vector<CopyRun>& runs) {
  struct Loop {
    int64_t times, from_stride, to_stride;
  };
  std::vector<Loop> loops{{1, 1, 1}};  // innermost first; a dim that continues the loop before it is joined to it
  CopyRun run{from.source, from.place, to.place, 0, 1, 0, 0};
  int64_t from_stride = 1, to_stride = 1;
  for (size_t d = part.begin.size(); d-- > 0;) {
    run.from += (part.begin[d] - from.box.begin[d]) * from_stride;
    run.to += (part.begin[d] - to.box.begin[d]) * to_stride;
    Loop& last = loops.back();
    const int64_t times = box_extent(part, d);
    if (from_stride == last.times * last.from_stride && to_stride == last.times * last.to_stride) last.times *= times;
    else if (times > 1) loops.push_back({times, from_stride, to_stride});
    from_stride *= box_extent(from.box, d);
    to_stride *= box_extent(to.box, d);
  }
  run.count = loops[0].times;
  loops.erase(loops.begin());
  const auto longest = std::ranges::max_element(loops, {}, &Loop::times);
  if (longest != loops.end()) {
    run.times = longest->times;
    run.from_stride = longest->from_stride;
    run.to_stride = longest->to_stride;
    loops.erase(longest);
  }
  const size_t begin = runs.size();
  runs.push_back(run);
  for (const Loop& loop : loops) repeat_runs(runs, begin, loop.times, loop.from_stride, loop.to_stride);
}

// The intersection of a saved box with a wanted one.
struct SharedBox {
  Box box;
  const SavedBox* source;
};

// Returns the dim along which the fewest pairs of boxes overlap.
size_t sweep_dim(const std::vector<SharedBox>& shared, size_t rank) {
  size_t best = 0;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (size_t d = 0; d < rank; ++d) {
    std::vector<int64_t> begins, ends;
    for (const SharedBox& part : shared) {
      begins.push_back(part.box.begin[d]);
      ends.push_back(part.box.end[d]);
    }
    std::sort(begins.begin(), begins.end());
    std::sort(ends.begin(), ends.end());
    int64_t pairs = 0;  // of boxes that overlap along dim d
    auto ended = ends.begin();
    for (size_t i = 0; i < begins.size(); ++i) {
      while (*ended <= begins[i]) ++ended;
      pairs += static_cast<int64_t>(i) - (ended - ends.begin());
    }
    if (pairs < least) std::tie(best, least) = std::pair(d, pairs);
  }
  return best;
}

void copy_box(const std::vector<SavedBox>& sources, const PlacedBox& wanted, CopyList& copies) {
  std::vector<SharedBox> shared;
  for (const SavedBox& source : sources) {
    if (overlaps(source.box, wanted.box)) shared.push_back({intersection(source.box, wanted.box), &source});
  }
  const size_t dim = sweep_dim(shared, wanted.box.begin.size());
  std::ranges::stable_sort(shared, {}, [&](const SharedBox& part) { return part.box.begin[dim]; });
  std::vector<Box> taken;  // copied boxes that reach the sweep's position along `dim`
  for (const SharedBox& part : shared) {
    std::erase_if(taken, [&](const Box& box) { return box.end[dim] <= part.box.begin[dim]; });
    const std::vector<Box> rest = rest_of({part.box}, taken);
    for (const Box& box : rest) {
      add_runs(*part.source, wanted, box, copies.runs);
      copies.missing -= box.numel();
    }
    if (!rest.empty()) taken.push_back(part.box);
  }
}

// The general case. Looks only at saved boxes whose span in the tensor's row-major order overlaps the span of a wanted box.
CopyList copy_boxes(const std::vector<int64_t>& shape, const std::vector<Region>& saved, const Region& wanted) {
  const auto span = [&](const Box& box, int64_t begin, int64_t end) {
    return std::pair(offset_in_tensor(shape, box, begin), offset_in_tensor(shape, box, end - 1));
  };
  std::vector<std::pair<int64_t, int64_t>> wanted_spans;
  for_each_box_part(wanted,
                    [&](const Box& box, int64_t begin, int64_t end, int64_t) { wanted_spans.push_back(span(box, begin, end)); });
  std::vector<SavedBox> sources;
  for (size_t i = 0; i < saved.size(); ++i) {
    for_each_box_part(saved[i], [&](const Box& box, int64_t begin, int64_t end, int64_t place) {
      const auto [first, last] = span(box, begin, end);
      const bool is_near =
          std::ranges::any_of(wanted_spans, [&](const auto& other) { return first <= other.second && other.first <= last; });
      if (!is_near) return;
      for (PlacedBox& part : region_boxes({{box}, begin, end - begin}))
        sources.push_back({std::move(part.box), place + part.place, static_cast<int32_t>(i)});
    });
  }
  CopyList copies{{}, wanted.count};
  for (const PlacedBox& box : region_boxes(wanted)) copy_box(sources, box, copies);
  return copies;
}

// Sorts the runs, and joins a run to the one before it if it continues that one.
CopyList runs_in_order(CopyList copies) {
  std::ranges::sort(copies.runs, {}, [](const CopyRun& run) { return std::tie(run.source, run.from, run.to); });
  std::vector<CopyRun> joined;
  for (const CopyRun& run : copies.runs) {
    CopyRun* last = joined.empty() ? nullptr : &joined.back();
    const bool goes_on = last && last->source == run.source && last->times == 1 && run.times == 1 &&
                         last->from + last->count == run.from && last->to + last->count == run.to;
    if (goes_on) last->count += run.count;
    else joined.push_back(run);
  }
  copies.runs.swap(joined);
  return copies;
}

}  // namespace

CopyList make_copy_list(const std::vector<int64_t>& shape, const std::vector<Region>& saved, const Region& wanted) {
  IntervalLine line = line_of_boxes(saved, wanted);
  CopyList copies = copy_line(line, wanted.count);
  if (copies.missing == 0) return runs_in_order(std::move(copies));
  const bool is_flat = line_of_tensor(shape, saved, wanted, line);
  copies = copy_line(line, wanted.count);
  if (copies.missing == 0 || is_flat) return runs_in_order(std::move(copies));
  return runs_in_order(copy_boxes(shape, saved, wanted));
}

}  // namespace zt
