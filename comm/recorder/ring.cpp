#include "ring.h"

#include <algorithm>
#include <cstring>

#include "zt/process/activity.h"
#include "zt/process/trace.h"

namespace zt::comm {

namespace {

template <size_t N>
void write(std::array<char, N>& to, const std::string& text) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(to.data(), text.data(), length);
  to[length] = 0;
}

}  // namespace

const char* name_of(CallStage stage) {
  static constexpr const char* kNames[kCallStages] = {"queued", "running", "done", "failed", "timed_out"};
  return kNames[static_cast<size_t>(stage)];
}

Ring::Ring(RingMemory& memory, std::shared_ptr<void> keeper, const Group& group, const std::string& backend, int copy)
    : memory_(memory), keeper_(std::move(keeper)), copy_(copy), sends_(group.ranks.size()), receives_(group.ranks.size()) {
  RingTitle title;
  write(title.axis, group.name);
  write(title.backend, backend);
  title.size = group.size();
  title.copy = copy;
  std::copy_n(group.ranks.begin(), std::min(group.ranks.size(), kMostMembers), title.ranks.begin());
  memory_.title.store(title);
  memory_.added.store(0, std::memory_order_relaxed);
  memory_.collectives.store(0, std::memory_order_relaxed);
  memory_.state.store(RingMemory::open, std::memory_order_release);
}

std::shared_ptr<Ring> Ring::make_private(const Group& group, const std::string& backend) {
  auto memory = std::make_shared<RingMemory>();
  RingMemory& place = *memory;
  return std::make_shared<Ring>(place, std::move(memory), group, backend, -1);
}

Ring::~Ring() {
  memory_.state.store(RingMemory::closed, std::memory_order_release);
}

CallRecord Ring::add(const Call& call) {
  CallRecord record{.number = added_++, .call = call, .queued_ns = now_ns()};
  if (is_collective(call.kind)) record.turn = collectives_++;
  else record.turn = (call.kind == CallKind::send ? sends_ : receives_)[static_cast<size_t>(call.peer)]++;
  write(record.activity, current_activity());
  memory_.records[record.number % kRecords].store(record);
  memory_.collectives.store(collectives_, std::memory_order_relaxed);
  memory_.added.store(added_, std::memory_order_release);
  return record;
}

// Does nothing if the record of the call has been overwritten by a later call.
void Ring::change(uint64_t number, size_t time, int64_t now_ns, CallStage stage) {
  auto& record = memory_.records[number % kRecords];
  if (record.word(offsetof(CallRecord, number)).load(std::memory_order_relaxed) != number) return;
  record.word(time).store(static_cast<uint64_t>(now_ns), std::memory_order_relaxed);
  record.word(offsetof(CallRecord, stage)).store(static_cast<uint64_t>(stage), std::memory_order_release);
}

void Ring::start(uint64_t number, int64_t now_ns) {
  change(number, offsetof(CallRecord, started_ns), now_ns, CallStage::running);
}

void Ring::end(uint64_t number, CallStage stage, int64_t now_ns) {
  change(number, offsetof(CallRecord, ended_ns), now_ns, stage);
}

void record_call(Ring& ring, Operation& operation) {
  const CallRecord record = ring.add(operation.call);
  operation.number = record.number;
  operation.turn = record.turn;
  operation.queued_ns = record.queued_ns;
}

}  // namespace zt::comm
