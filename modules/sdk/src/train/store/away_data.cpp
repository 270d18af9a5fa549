#include "away_data.h"

#include <sys/mman.h>

#include <array>

#include "execute/movement/move_values.h"
#include "zt/base/error.h"
#include "zt/base/tensor.h"
#include "zt/execute/pinning.h"

namespace zt {

namespace {

// Returns which data a memory is part of, by its kind; nothing for one that stays.
std::optional<TrainerData> data_of(const std::string& kind) {
  if (kind == "parameters") return TrainerData::parameters;
  if (kind == "gradients" || kind == "buckets") return TrainerData::gradients;
  if (kind == "optimizer" || kind == "master" || kind == "buffers") return TrainerData::optimizer;
  return std::nullopt;
}

// Aligned memory through which bytes pass, some at a time.
class Passage {
 public:
  explicit Passage(at::Device device) : device_(device) {}
  ~Passage() {
    try {
      finish();
    } catch (const std::exception&) {  // another error is on its way
    }
  }
  Passage(const Passage&) = delete;

  void write(const at::Tensor& bytes, Homes& homes, Tier tier, int64_t place) {
    for_each_piece(bytes, [&](Window& window, const at::Tensor& piece, int64_t at) {
      window.finish();
      window.memory(device_).narrow(0, 0, piece.numel()).copy_(piece);
      window.work = homes.write(tier, place + at, window.memory(device_).narrow(0, 0, in_whole_pages(piece.numel())));
    });
  }
  void read(const at::Tensor& bytes, Homes& homes, Tier tier, int64_t place) {
    for_each_piece(bytes, [&](Window& window, const at::Tensor& piece, int64_t at) {
      window.finish();
      window.work = homes.read(tier, place + at, window.memory(device_).narrow(0, 0, in_whole_pages(piece.numel())));
      window.target = piece;
    });
  }
  void finish() {
    for (size_t i = 0; i < windows_.size(); ++i) windows_[(next_ + i) % windows_.size()].finish();
  }

 private:
  static constexpr int64_t kWindow = int64_t{4} << 20;

  struct Window {
    const at::Tensor& memory(at::Device device) {
      if (!bytes.defined()) bytes = aligned_bytes(kWindow, device, /*is_zeroed=*/false);
      return bytes;
    }
    // Waits for what was started, and gives what was read to its target.
    void finish() {
      std::exchange(work, Work()).synchronize();
      if (at::Tensor to = std::exchange(target, at::Tensor()); to.defined()) to.copy_(bytes.narrow(0, 0, to.numel()));
    }

    at::Tensor bytes = {}, target = {};
    Work work = {};
  };

  template <class Move>
  void for_each_piece(const at::Tensor& bytes, const Move& move) {
    for (int64_t at = 0; at < bytes.numel(); at += kWindow) {
      move(windows_[next_], bytes.narrow(0, at, std::min(kWindow, bytes.numel() - at)), at);
      next_ = (next_ + 1) % windows_.size();
    }
  }

  const at::Device device_;
  std::array<Window, 4> windows_;
  size_t next_ = 0;
};

// Calls `body` on all ranks together. A Fault of this rank's disk is shared with the others, as all errors are.
void run_shared(Communicator* world, const std::function<void()>& body) {
  run_together(world, [&] {
    try {
      body();
    } catch (const Fault& error) {
      if (!world) throw;
      throw Misuse(error.what());
    }
  });
}

// Gives the whole pages of the memory back to the system; they read as zeros from now on.
void drop_pages(const at::Tensor& bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data_ptr());
  const uintptr_t first = (begin + kHomeAlign - 1) / kHomeAlign * kHomeAlign,
                  end = (begin + static_cast<uintptr_t>(bytes.numel())) / kHomeAlign * kHomeAlign;
  if (first >= end) return;
  void* pages = reinterpret_cast<void*>(first);
  // The first works for memory that processes share, and for no other.
  if (madvise(pages, end - first, MADV_REMOVE) != 0) madvise(pages, end - first, MADV_DONTNEED);
}

}  // namespace

// Returns the data that offload.move keeps in host memory.
AwayData::Found AwayData::in_host_tier(const std::set<TrainerData>& what) const {
  static constexpr std::array kOfUnits{TrainerData::optimizer, TrainerData::gradients, TrainerData::parameters};  // by UnitData
  Found found;
  const Elsewhere& elsewhere = store_.state().elsewhere;
  for (const UnitData data : kAllData) {
    const TrainerData kind = kOfUnits[static_cast<size_t>(data)];
    if (!what.contains(kind)) continue;
    for (const DataRecords& records : elsewhere.map.records[static_cast<size_t>(data)]) {
      if (records.home.tier != Tier::host || records.total() == 0) continue;
      HostBytes lying = elsewhere.homes->in_place(Tier::host, records.begin, records.total());
      lying.arrived.wait();
      found.push_back({kind, {word_of(Tier::host), std::move(lying.bytes)}});
    }
  }
  return found;
}

AwayData::Found AwayData::find(const std::set<TrainerData>& what, Tier to, const std::vector<at::Tensor>& gradients) const {
  std::vector<HeldMemory> held = held_memories(store_.state());
  for (const at::Tensor& buffer : gradients) held.push_back({"gradients", bytes_of(buffer.storage())});
  Found found;
  for (HeldMemory& memory : held) {
    const auto data = data_of(memory.kind);
    if (data && what.contains(*data) && memory.bytes.numel() > 0) found.emplace_back(*data, std::move(memory));
  }
  if (to == Tier::file) std::ranges::move(in_host_tier(what), std::back_inserter(found));
  return found;
}

void AwayData::evict(const std::set<TrainerData>& what, Tier to, const std::vector<at::Tensor>& gradients,
                     const MakeHomes& make) {
  Trip trip{.what = what, .to = to};
  int64_t bytes = 0;
  for (auto& [data, memory] : find(what, to, gradients)) {
    const int64_t own = memory.bytes.numel();
    trip.gone.push_back({data, std::move(memory), bytes, own});
    bytes += in_whole_pages(own);
  }
  static const std::vector<at::Tensor> no_slots;
  Communicator* world = store_.plan().world();
  HomeNeeds needs{.slots = no_slots, .world = world, .device = store_.state().links->device()};
  (to == Tier::file ? needs.files : needs.host) = bytes;
  run_shared(world, [&] { trip.homes = make(needs); });
  run_shared(world, [&] { move(trip, what, /*is_back=*/false); });
  for (Gone& gone : trip.gone) give_memory_back(gone);
  store_.free_memory();
  trips_.push_back(std::move(trip));
}

// Memory of the device passes through windows on the device, that of the host through windows there.
void AwayData::move(const Trip& trip, const std::set<TrainerData>& what, bool is_back) const {
  for (const bool on_host : {true, false}) {
    Passage passage(on_host ? at::Device(at::kCPU) : store_.state().links->device());
    for (const Gone& gone : trip.gone) {
      if (!what.contains(gone.data) || gone.memory.bytes.is_cpu() != on_host) continue;
      if (is_back) passage.read(gone.memory.bytes, *trip.homes, trip.to, gone.place);
      else passage.write(gone.memory.bytes, *trip.homes, trip.to, gone.place);
    }
    passage.finish();
  }
}

void AwayData::fetch(const std::set<TrainerData>& what) {
  for (const Trip& trip : trips_) {
    for (const Gone& gone : trip.gone) {
      if (what.contains(gone.data)) take_memory(gone);
    }
  }
  run_shared(store_.plan().world(), [&] {
    for (const Trip& trip : trips_) move(trip, what, /*is_back=*/true);
  });
  for (Trip& trip : trips_) {
    std::erase_if(trip.gone, [&](const Gone& gone) { return what.contains(gone.data); });
    for (const TrainerData data : what) trip.what.erase(data);
  }
  std::erase_if(trips_, [](const Trip& trip) { return trip.what.empty(); });
}

std::set<TrainerData> AwayData::data() const {
  std::set<TrainerData> all;
  for (const Trip& trip : trips_) all.insert(trip.what.begin(), trip.what.end());
  return all;
}

TierBytes AwayData::bytes() const {
  TierBytes bytes;
  for (const Trip& trip : trips_) {
    for (const Gone& gone : trip.gone) bytes.in(trip.to) += gone.bytes;
  }
  return bytes;
}

void AwayData::correct(std::map<std::string, int64_t>& bytes) const {
  for (const Trip& trip : trips_) {
    for (const Gone& gone : trip.gone) {
      if (gone.memory.bytes.is_cpu()) bytes[gone.memory.kind] -= gone.bytes;
    }
  }
  this->bytes().add_to(bytes);
}

// Pages that are pinned stay until they are not, and a device must not use those that have gone.
void AwayData::give_memory_back(Gone& gone) const {
  const at::Tensor& bytes = gone.memory.bytes;
  if (!bytes.is_cpu()) {
    c10::StorageImpl* storage = bytes.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap({nullptr, storage->device()});
    storage->set_nbytes(0);
    return;
  }
  gone.was_pinned = bytes.is_pinned();
  if (gone.was_pinned) pinning_for(store_.state().links->device().type()).unpin(bytes.storage().mutable_data());
  drop_pages(bytes);
}

void AwayData::take_memory(const Gone& gone) const {
  const at::Tensor& bytes = gone.memory.bytes;
  c10::StorageImpl* storage = bytes.storage().unsafeGetStorageImpl();
  if (bytes.is_cpu()) {
    if (gone.was_pinned) pinning_for(store_.state().links->device().type()).pin(storage->mutable_data(), storage->nbytes());
    return;
  }
  if (storage->nbytes() > 0) return;
  const at::Tensor fresh = store_.memory_like(storage, gone.bytes);
  storage->set_data_ptr_noswap(fresh.storage().unsafeGetStorageImpl()->set_data_ptr({nullptr, storage->device()}));
  storage->set_nbytes(static_cast<size_t>(gone.bytes));
}

}  // namespace zt
