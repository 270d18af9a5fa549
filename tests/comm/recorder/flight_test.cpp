// The contents of the flight recorder, and its files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "comm/support/ranks.h"
#include "mesh/make_backend.h"
#include "recorder/black_box.h"
#include "recorder/flight_file.h"
#include "recorder/report.h"
#include "support/message.h"
#include "support/spawn.h"
#include "zt/base/error.h"
#include "zt/process/activity.h"

namespace zt::comm {

namespace {

const Group kGroup{"dp", 1, {4, 6, 8}};

Call call_to(CallKind kind, int peer) {
  return {.kind = kind, .dtype = at::kFloat, .peer = peer, .count = 3};
}

std::filesystem::path fresh_folder() {
  std::string pattern = std::filesystem::temp_directory_path() / "zt-flight-XXXXXX";
  return mkdtemp(pattern.data());
}

TEST(Flight, RecordsSayWhatWhenAndWhy) {
  const auto box = BlackBox::create(World{.rank = 6, .size = 9, .threads = nullptr});
  const auto ring = box->open_ring(kGroup, "mpi");
  const std::string activity = "REDUCE_GRAD 3 and something that is too long for a record of forty";
  {
    const Activity now(activity);
    ring->add(call_to(CallKind::all_reduce, -1));
  }
  ring->add(call_to(CallKind::send, 2));
  ring->start(0, 77);
  ring->end(0, CallStage::done, 99);
  const Flight flight = box->read();
  EXPECT_EQ(flight.rank, 6);
  EXPECT_EQ(flight.world_size, 9);
  EXPECT_EQ(flight.process, getpid());
  EXPECT_TRUE(flight.is_alive);
  ASSERT_EQ(flight.tracks.size(), 1U);
  const Track& track = flight.tracks[0];
  EXPECT_EQ(track.axis, "dp");
  EXPECT_EQ(track.backend, "mpi");
  EXPECT_EQ(track.ranks, kGroup.ranks);
  EXPECT_EQ(track.collectives, 1U);
  ASSERT_EQ(track.records.size(), 2U);
  EXPECT_EQ(track.records[0].stage, CallStage::done);
  EXPECT_EQ(track.records[0].started_ns, 77);
  EXPECT_EQ(track.records[0].ended_ns, 99);
  EXPECT_STREQ(track.records[0].activity.data(), activity.substr(0, 39).c_str());
  EXPECT_EQ(track.records[1].stage, CallStage::queued);
  EXPECT_EQ(track.records[1].call, call_to(CallKind::send, 2));
  EXPECT_STREQ(track.records[1].activity.data(), "");
}

TEST(Flight, TurnsCountCollectivesAndEachPairsMessages) {
  const auto ring = Ring::make_private(kGroup, "mpi");
  EXPECT_EQ(ring->add(call_to(CallKind::barrier, -1)).turn, 0U);
  EXPECT_EQ(ring->add(call_to(CallKind::send, 0)).turn, 0U);
  EXPECT_EQ(ring->add(call_to(CallKind::send, 2)).turn, 0U);
  EXPECT_EQ(ring->add(call_to(CallKind::recv, 0)).turn, 0U);
  EXPECT_EQ(ring->add(call_to(CallKind::send, 2)).turn, 1U);
  const CallRecord last = ring->add(call_to(CallKind::broadcast, 0));
  EXPECT_EQ(last.turn, 1U);
  EXPECT_EQ(last.number, 5U);
}

TEST(Flight, ARingKeepsTheLastCalls) {
  const auto box = BlackBox::create(World{});
  const auto ring = box->open_ring(kGroup, "mpi");
  for (size_t i = 0; i < kRecords + 10; ++i) ring->add(call_to(CallKind::all_reduce, -1));
  ring->end(3, CallStage::done, 1);  // overwritten long ago
  ring->end(10, CallStage::failed, 1);
  const auto records = box->read().tracks[0].records;
  ASSERT_EQ(records.size(), kRecords);
  EXPECT_EQ(records.front().number, 10U);
  EXPECT_EQ(records.front().stage, CallStage::failed);
  EXPECT_EQ(records.back().number, kRecords + 9);
  for (size_t i = 1; i < records.size(); ++i) EXPECT_EQ(records[i].stage, CallStage::queued);
}

TEST(Flight, RingsOfDeadCommunicatorsAreUsedAgain) {
  const auto box = BlackBox::create(World{});
  std::vector<std::shared_ptr<Ring>> rings;
  for (int i = 0; i < 1024; ++i) rings.push_back(box->open_ring(kGroup, "mpi"));
  EXPECT_EQ(box->read().tracks.back().copy, 1023);
  EXPECT_SAYS("1024 communicators at once", box->open_ring(kGroup, "mpi"));
  rings[7].reset();
  const auto again = box->open_ring({"tp", 0, {6}}, "shm");
  EXPECT_EQ(box->read().tracks[7].axis, "tp");
}

TEST(Flight, TheFirstReasonForAnEndStays) {
  const auto box = BlackBox::create(World{});
  EXPECT_EQ(box->read().end, "");
  box->set_end(std::string(2000, 'x'));
  box->set_end("its script has ended");
  EXPECT_EQ(box->read().end, std::string(511, 'x'));
}

TEST(Flight, CommunicatorsRecordWhatTheyCall) {
  std::vector<Flight> flights(2);
  test::spawn(2, [&](const World& world) {
    const auto comm = make_communicator(world, "local", {"dp", world.rank, {0, 1}});
    const auto tensor = at::ones({5});
    comm->all_reduce(tensor, tensor);
    comm->all_reduce(std::vector<at::Tensor>{at::ones({2}), at::ones({3})}, ReduceOp::max, Async::yes).wait();
    if (world.rank == 0) comm->send(tensor, 1);
    else comm->recv(tensor, 0);
    flights[static_cast<size_t>(world.rank)] = black_box(world)->read();
  });
  for (int r = 0; r < 2; ++r) {
    const Flight& flight = flights[static_cast<size_t>(r)];
    ASSERT_EQ(flight.tracks.size(), 1U);
    const auto& records = flight.tracks[0].records;
    ASSERT_EQ(records.size(), 3U);
    EXPECT_EQ(records[0].call.text(""), "all_reduce of 5 float32 (sum)");
    EXPECT_CONTAINS(records[1].call.text(""), "all_reduce of a list of 2 tensors of ");
    EXPECT_EQ(records[2].call.text("rank 1"), r == 0 ? "send of 5 float32 to rank 1" : "recv of 5 float32 from rank 1");
    for (const CallRecord& record : records) {
      EXPECT_EQ(record.stage, CallStage::done);
      EXPECT_LE(record.queued_ns, record.started_ns);
      EXPECT_LE(record.started_ns, record.ended_ns);
    }
  }
}

TEST(Flight, FilesGiveBackWhatWasWritten) {
  const auto folder = fresh_folder();
  const auto box = BlackBox::create(World{.rank = 3, .size = 4, .threads = nullptr});
  const auto ring = box->open_ring(kGroup, "shm");
  ring->add(call_to(CallKind::all_to_all, -1));
  ring->start(0, 5);
  box->set_end("its script failed (bytes: \xff)");
  Flight written = box->read();
  write_flights(folder / "flight", {written});
  const auto read = read_flights(folder / "flight");
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].rank, 3);
  EXPECT_EQ(read[0].world_size, 4);
  EXPECT_EQ(read[0].read_ns, written.read_ns);
  EXPECT_EQ(read[0].unix_offset_ns, written.unix_offset_ns);
  EXPECT_CONTAINS(read[0].end, "its script failed (bytes: ");
  ASSERT_EQ(read[0].tracks.size(), 1U);
  const CallRecord &before = written.tracks[0].records[0], &after = read[0].tracks[0].records[0];
  EXPECT_EQ(after.call, before.call);
  EXPECT_EQ(after.stage, CallStage::running);
  EXPECT_EQ(after.queued_ns, before.queued_ns);
  EXPECT_EQ(read[0].tracks[0].ranks, kGroup.ranks);
  std::filesystem::remove_all(folder);
}

TEST(Flight, FilesThatAreNotWhole) {
  const auto folder = fresh_folder();
  EXPECT_CONTAINS(test::message_of<Fault>([&] { read_flights(folder / "flight"); }), "cannot read the flight records in");
  EXPECT_CONTAINS(test::message_of<Fault>([&] { read_flights(folder); }), "holds no flight records");
  const auto path = folder / "rank0.json";
  for (const char* text : {"", "{", "{\"rank\": 0}", "[]", "{\"rank\": \"zero\"}"}) {
    std::ofstream(path) << text;
    EXPECT_CONTAINS(test::message_of<Fault>([&] { read_flights(folder); }), "rank0.json is not a whole flight record");
  }
  std::filesystem::remove_all(folder);
}

}  // namespace

}  // namespace zt::comm
