// Data that lie outside of the device's memory between their uses: in which bytes, and how they get there and back.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "zt/comm/comm.h"
#include "zt/model/unit.h"
#include "zt/program/rank_program.h"

namespace zt {

inline constexpr int64_t kHomeAlign = 4096;  // bytes, of places in a tier and of memory that is moved there
// Returns the least multiple of kHomeAlign that holds so many bytes.
constexpr int64_t in_whole_pages(int64_t bytes) {
  return (bytes + kHomeAlign - 1) / kHomeAlign * kHomeAlign;
}

// Bytes of a tier as they were when Homes::keep was called, for a thread that reads them while the rank goes on. A write of the
// rank to one of them waits until it is released. The end of the object releases all.
// Threads: one at a time, any.
class KeptBytes {
 public:
  virtual ~KeptBytes();
  // Starts to copy the bytes from `place` on to `to` ([n], uint8, host memory). All are multiples of kHomeAlign. A wait throws
  // Fault if they cannot be read.
  virtual Work read(int64_t place, at::Tensor to) = 0;
  // The bytes [place, place + bytes), any number of them, are not needed any more.
  virtual void release(int64_t place, int64_t bytes) = 0;
};

// Memory of the host, [n] uint8, and the work after which it has its values.
struct HostBytes {
  at::Tensor bytes;
  Work arrived;
};

// The memories of a rank besides its device's. A place is a number of bytes from the start of what the rank has in the tier.
// Places, sizes and addresses are multiples of kHomeAlign. What was not written yet reads as zeros.
// Threads: the rank's thread only.
class Homes {
 public:
  virtual ~Homes();
  // Start to move bytes ([n], uint8, contiguous, on the device), which must stay alive and unchanged until the work is waited
  // for. Transfers end in any order: wait for one before another one that touches the same place. A wait throws Fault if the
  // transfer has failed; the place then has the old bytes, the new ones, or some of both.
  virtual Work read(Tier tier, int64_t place, at::Tensor to) = 0;
  virtual Work write(Tier tier, int64_t place, at::Tensor from) = 0;
  // Returns the bytes of a tier in host memory as they lie there, for code of the host, which may use them after the work was
  // waited for. No transfer from there may be under way. Throws Fault for other tiers.
  virtual HostBytes in_place(Tier tier, int64_t place, int64_t bytes);
  // Keeps the bytes [place, place + bytes), any number of them. No transfer may be under way there.
  virtual std::shared_ptr<KeptBytes> keep(Tier tier, int64_t place, int64_t bytes) = 0;
  // Takes `bytes` (a multiple of kHomeAlign) of the tier besides those of HomeNeeds, and returns their place. Throws Fault if
  // there is no room. `give_back` gives the same bytes back; no transfer may be under way there.
  virtual int64_t take(Tier tier, int64_t bytes) = 0;
  virtual void give_back(Tier tier, int64_t place, int64_t bytes) = 0;
};

// The memory that a rank needs outside its device.
struct HomeNeeds {
  int64_t host = 0, files = 0;           // bytes in the tiers
  const std::vector<at::Tensor>& slots;  // the memory that most transfers move: parts of `arena`
  at::Tensor arena = {};                 // undefined if there are none; in host memory for those of Elsewhere::host_slots
  Communicator* world = nullptr;         // for control over all ranks of the mesh; null if there is one
  at::Device device = at::kCPU;
};

// Where one kind of a unit's data lies in its tier. Each slice that does not stay has a record: its tensors one after the other,
// each with room for whole blocks of kSliceAlign elements. Plain data.
struct DataRecords {
  Home home = {};
  int slices = 1;
  int64_t elements = 0;                   // of the owned part
  std::vector<std::string> tensors = {};  // "master" and optimizer states, or "shard"
  at::ScalarType dtype = at::kFloat;      // of all tensors
  int64_t begin = 0;                      // the place of the first record

  Slice slice(int part) const { return slice_of(elements, part, slices); }
  int64_t room(int part) const;  // bytes of a tensor in the record of this slice
  int64_t bytes(int part) const { return std::ssize(tensors) * room(part); }
  int64_t place(int part) const;  // of its record
  int64_t end() const { return place(slices); }
  // The bytes of all records.
  int64_t total() const { return end() - begin; }
  // Returns the tensors of the slice, as views of its record ([bytes(part)], uint8).
  DataSlice in_record(const at::Tensor& record, int part) const;
};

// All records of a rank.
struct HomeMap {
  std::array<std::vector<DataRecords>, kAllData.size()> records = {};  // by UnitData and unit
  int64_t host = 0, files = 0;                                         // bytes in the tiers

  const DataRecords& of(UnitData data, int unit) const {
    return records[static_cast<size_t>(data)].at(static_cast<size_t>(unit));
  }
};
// `units`: of the rank, without buffers. `states`: the optimizer's. Pure.
HomeMap map_homes(const ModelInfo& model, const RankProgram& program, const std::vector<Unit>& units,
                  const std::vector<std::string>& states);

// The places and the memory that FETCH and EVICT use.
struct Elsewhere {
  HomeMap map = {};
  // By the attribute `slot`: [bytes] uint8; empty if no action has the number.
  std::vector<at::Tensor> slots = {};       // on the device
  std::vector<at::Tensor> host_slots = {};  // in host memory, of actions with memory=host whose data lie in files
  std::shared_ptr<Homes> homes = {};        // null if nothing lies elsewhere
};

// Returns uint8 memory that starts at a multiple of kHomeAlign, zeroed or with any content.
at::Tensor aligned_bytes(int64_t bytes, at::Device device, bool is_zeroed = true);
// Returns such memory of the host, zeroed, which `device` copies from and to while the host does other things. Where the system
// does not pin so much, the host waits for these copies.
at::Tensor pinned_bytes(int64_t bytes, at::Device device);

}  // namespace zt
