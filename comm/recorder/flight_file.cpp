#include "flight_file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "zt/base/error.h"
#include "zt/base/options.h"
#include "zt/base/tensor.h"
#include "zt/io/atomic_file.h"

namespace zt::comm {

namespace {

using nlohmann::json;

json to_json(const CallRecord& record) {
  return {{"number", record.number},
          {"turn", record.turn},
          {"call", name_of(record.call.kind)},
          {"type", dtype_name(record.call.dtype)},
          {"op", name_of(record.call.reduce)},
          {"peer", record.call.peer},
          {"tensors", record.call.tensors},
          {"lengths", record.call.lengths},
          {"first_lengths", record.call.first_lengths},
          {"count", record.call.count},
          {"stage", name_of(record.stage)},
          {"queued_ns", record.queued_ns},
          {"started_ns", record.started_ns},
          {"ended_ns", record.ended_ns},
          {"action", record.activity.data()}};
}

json to_json(const Track& track) {
  auto calls = json::array();
  for (const CallRecord& record : track.records) calls.push_back(to_json(record));
  return {{"axis", track.axis},   {"backend", track.backend},         {"copy", track.copy},
          {"ranks", track.ranks}, {"collectives", track.collectives}, {"calls", std::move(calls)}};
}

json to_json(const Flight& flight) {
  auto tracks = json::array();
  for (const Track& track : flight.tracks) tracks.push_back(to_json(track));
  return {{"rank", flight.rank},         {"world_size", flight.world_size},         {"process", flight.process},
          {"is_alive", flight.is_alive}, {"is_stopped", flight.is_stopped},         {"end", flight.end},
          {"read_ns", flight.read_ns},   {"unix_offset_ns", flight.unix_offset_ns}, {"communicators", std::move(tracks)}};
}

// Returns the enumerator with this name among the values 0 to `count` - 1. Throws Fault if there is none.
template <class T>
T parse_name(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    if (name == name_of(static_cast<T>(i))) return static_cast<T>(i);
  }
  fault("'{}' is not a known name", name);
}

CallRecord record_from(const json& value) {
  CallRecord record;
  record.number = value.at("number");
  record.turn = value.at("turn");
  record.call = {.kind = parse_name<CallKind>(value.at("call"), kCallKinds),
                 .dtype = parse_dtype(value.at("type").get<std::string>()),
                 .reduce = parse_reduce_op(value.at("op")),
                 .peer = value.at("peer"),
                 .tensors = value.at("tensors"),
                 .lengths = value.at("lengths"),
                 .first_lengths = value.at("first_lengths").get<decltype(Call::first_lengths)>(),
                 .count = value.at("count")};
  record.stage = parse_name<CallStage>(value.at("stage"), kCallStages);
  record.queued_ns = value.at("queued_ns");
  record.started_ns = value.at("started_ns");
  record.ended_ns = value.at("ended_ns");
  const std::string activity = value.at("action");
  std::memcpy(record.activity.data(), activity.data(), std::min(activity.size(), record.activity.size() - 1));
  return record;
}

Flight flight_from(const json& value) {
  Flight flight{
      .rank = value.at("rank"), .world_size = value.at("world_size"), .process = value.at("process"), .end = {}, .tracks = {}};
  flight.is_alive = value.at("is_alive");
  flight.is_stopped = value.at("is_stopped");
  flight.end = value.at("end");
  flight.read_ns = value.at("read_ns");
  flight.unix_offset_ns = value.at("unix_offset_ns");
  for (const json& item : value.at("communicators")) {
    Track track{.axis = item.at("axis"), .backend = item.at("backend"), .copy = item.at("copy"), .ranks = {}, .records = {}};
    track.ranks = item.at("ranks").get<std::vector<int>>();
    track.collectives = item.at("collectives");
    for (const json& call : item.at("calls")) track.records.push_back(record_from(call));
    flight.tracks.push_back(std::move(track));
  }
  return flight;
}

Flight read_flight(const std::string& path) {
  std::ifstream file(path);
  try {
    return flight_from(json::parse(file));
  } catch (const std::exception& error) {
    fault("{} is not a whole flight record: {}", path, describe(error));
  }
}

// An earlier run with this folder may have had more ranks.
void remove_ranks_beyond(const std::string& folder, int world_size) {
  for (int rank = world_size; std::filesystem::remove(fmt::format("{}/rank{}.json", folder, rank)); ++rank) {
  }
}

}  // namespace

void write_flights(const std::string& folder, const std::vector<Flight>& flights) {
  std::filesystem::create_directories(folder);
  remove_ranks_beyond(folder, flights.empty() ? 0 : flights[0].world_size);
  for (const Flight& flight : flights) {
    io::AtomicFile file(fmt::format("{}/rank{}.json", folder, flight.rank));
    file.append(to_json(flight).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
    file.commit(io::Durability::process_crash);  // a report must not wait for a slow disk
  }
}

std::vector<Flight> read_flights(const std::string& folder) {
  std::error_code error;
  std::vector<Flight> flights;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") flights.push_back(read_flight(entry.path()));
  }
  if (error) {
    fault(
        "cannot read the flight records in {}: {}. A run writes them when it fails or is told to end; kill -USR1 of one of its "
        "processes makes it write them at once",
        folder, error.message());
  }
  if (flights.empty()) fault("{} holds no flight records (rank*.json)", folder);
  std::sort(flights.begin(), flights.end(), [](const Flight& a, const Flight& b) { return a.rank < b.rank; });
  return flights;
}

}  // namespace zt::comm
