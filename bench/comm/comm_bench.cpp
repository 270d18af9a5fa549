// Times the collectives and channels of zt.comm on a backend against the raw MPI call on the same buffers and against the memory
// traffic alone, in alternation. Prints the median over the calls of the time on the slowest rank. Sizes and bus bandwidth are
// those of nccl-tests: the size is that of the longer buffer; busbw = algbw * factor, where the factor is 2 (W - 1) / W for
// all_reduce, 1 for broadcast, and (W - 1) / W for the others.
//
//   mpirun -n 2 --bind-to core comm_bench --backend shm --op all_reduce --min 1M --max 64M
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <malloc.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm_subjects.h"
#include "core/group.h"
#include "mesh/make_backend.h"
#include "zt/base/tensor.h"

namespace zt::comm::bench {

namespace {

struct Options {
  std::vector<std::string> ops = op_names();
  std::vector<std::string> types{"float32"};
  std::string backend = "shm";
  uint64_t min = 8, max = uint64_t{256} << 20, factor = 4;
  int iterations = 20;
  bool is_async = false, is_ordinary = false, is_in_place = false, is_full = false, is_checked = true;
  std::string json;
};

// Returns the median over the calls of the slowest rank's time. `times` has this rank's microseconds per call. Collective.
double median_of_slowest(std::vector<double> times) {
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size()) / 2, times.end());
  return times[times.size() / 2];
}

// Returns the microseconds per call. Times 50 short calls together, because the clock and the barrier cost as much as one call.
template <class Call>
double timed(int64_t bytes, Call call) {
  const int calls = bytes <= 4096 ? 50 : 1;
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  for (int i = 0; i < calls; ++i) call();
  return (MPI_Wtime() - start) * 1e6 / calls;
}

nlohmann::json measure(const Subject& subject, const Communicator& comm, const Options& options) {
  const Async async = options.is_async ? Async::yes : Async::no;
  const auto bytes = static_cast<int64_t>(subject.count) * static_cast<int64_t>(subject.out.element_size());
  std::vector<double> ours, raw, limit;
  int64_t wrong = 0;
  for (int i = -2; i < options.iterations; ++i) {
    const double our_time = timed(bytes, [&] { subject.ours(async).wait(); });
    if (i == -2 && options.is_checked) wrong = subject.wrong();
    const double raw_time = subject.raw ? timed(bytes, subject.raw) : 0;
    const double limit_time = timed(bytes, subject.limit);
    if (i < 0) continue;  // warm-up
    ours.push_back(our_time / subject.messages);
    raw.push_back(raw_time / subject.messages);
    limit.push_back(limit_time / subject.messages);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  return {{"op", subject.op},
          {"backend", comm.backend()},
          {"type", dtype_name(subject.out.scalar_type())},
          {"memory", options.is_ordinary ? "ordinary" : "window"},
          {"in_place", options.is_in_place},
          {"bytes", bytes},
          {"count", subject.count},
          {"ranks", comm.size()},
          {"bus_factor", subject.bus_factor},
          {"us", median_of_slowest(ours)},
          {"mpi_us", median_of_slowest(raw)},
          {"limit_us", median_of_slowest(limit)},
          {"wrong", wrong}};
}

constexpr const char* kHead = "{:>12} {:>12} {:>9} {:>15} {:>10} {:>8} {:>8} {:>6} {:>10} {:>8} {:>8} {:>10} {:>8}\n";

void print_head() {
  fmt::print(kHead, "size", "count", "type", "op", "time", "algbw", "busbw", "#wrong", "MPI time", "busbw", "speedup", "limit",
             "reached");
  fmt::print(kHead, "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "", "(us)", "");
}

void print_row(const nlohmann::json& row) {
  const double bytes = row["bytes"], factor = row["bus_factor"], us = row["us"], mpi_us = row["mpi_us"],
               limit_us = row["limit_us"];
  const auto number = [](double value, int digits) { return fmt::format("{:.{}f}", value, digits); };
  const bool has_mpi = mpi_us > 0, has_limit = row["op"] != "barrier";
  fmt::print(kHead, row["bytes"].get<int64_t>(), row["count"].get<int64_t>(), row["type"].get<std::string>(),
             row["op"].get<std::string>(), number(us, 1), number(bytes / us / 1e3, 2), number(bytes / us / 1e3 * factor, 2),
             row["wrong"].get<int64_t>(), has_mpi ? number(mpi_us, 1) : "-",
             has_mpi ? number(bytes / mpi_us / 1e3 * factor, 2) : "-", has_mpi ? number(mpi_us / us, 2) : "-",
             has_limit ? number(limit_us, 1) : "-", has_limit ? number(limit_us / us, 2) : "-");
  std::fflush(stdout);
}

int64_t run(const World& world, const Options& options) {
  const CheckMode check = options.is_full ? CheckMode::full : CheckMode::first;
  const auto comm = make_communicator(world, options.backend, whole_group(world, "world"), {.check = check});
  const Memory memory = options.is_ordinary ? Memory::ordinary : Memory::window;
  if (world.rank == 0) print_head();
  auto rows = nlohmann::json::array();
  int64_t wrong = 0;
  const Place place = options.is_in_place ? Place::in_place : Place::apart;
  for (const auto& op : options.ops) {
    if (options.is_in_place && !has_in_place(op)) continue;
    for (const auto& type : options.types) {
      for (uint64_t bytes = options.min; bytes <= options.max; bytes *= options.factor) {
        const auto subject = make_subject(*comm, op, static_cast<int64_t>(bytes), parse_dtype(type), memory, place);
        rows.push_back(measure(subject, *comm, options));
        if (world.rank == 0) print_row(rows.back());
        wrong += rows.back()["wrong"].get<int64_t>();
        if (op == "barrier") break;
      }
    }
  }
  if (world.rank == 0 && !options.json.empty()) std::ofstream(options.json) << rows.dump(1) << "\n";
  return wrong;
}

}  // namespace

}  // namespace zt::comm::bench

int main(int argc, char** argv) {
  // As in the host: else every message that a channel receives would be in fresh pages.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  zt::comm::bench::Options options;
  CLI::App app("Times collectives against raw MPI and against the memory traffic alone. Run it under mpirun.");
  app.add_option("--backend", options.backend, "shm or mpi")->capture_default_str();
  app.add_option("--op", options.ops, "Collectives; channel and ping_pong")->check(CLI::IsMember(zt::comm::bench::op_names()));
  app.add_option("--type", options.types, "Types of the elements: float32, bfloat16, ...");
  app.add_option("--min", options.min, "Smallest size in bytes")->transform(CLI::AsSizeValue(false));
  app.add_option("--max", options.max, "Largest size in bytes")->transform(CLI::AsSizeValue(false));
  app.add_option("--factor", options.factor, "Ratio of a size to the previous one")
      ->check(CLI::Range(2, 1024))
      ->capture_default_str();
  app.add_option("--iterations", options.iterations, "Timed calls per size")->check(CLI::PositiveNumber)->capture_default_str();
  app.add_flag("--async", options.is_async, "Start each call with Async::yes and wait: measures the communication thread");
  app.add_flag("--ordinary", options.is_ordinary, "Use buffers from the heap instead of Communicator::allocate");
  app.add_flag("--in-place", options.is_in_place, "Run in place; skips collectives that have no in-place form");
  app.add_flag("--check-calls", options.is_full, "check = \"full\": compare every call over the ranks");
  app.add_flag("!--no-check", options.is_checked, "Do not check the results");
  app.add_option("--json", options.json, "Also write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  const zt::World world = zt::World::from_environment();
  if (world.launch != zt::Launch::mpi) {
    fmt::print(stderr, "comm_bench needs mpirun: mpirun -n 2 {}\n", argv[0]);
    return 2;
  }
  try {
    const int64_t wrong = zt::comm::bench::run(world, options);
    zt::run_shutdown_actions();
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "comm_bench: {}\n", error.what());
    std::_Exit(1);  // MPI_Finalize would wait for the other ranks
  }
}
