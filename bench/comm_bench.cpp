// Collectives of zt.comm beside the raw MPI call on the same buffers, in alternation: what one iteration of each takes on the
// slowest rank, median over the iterations. Sizes and bus bandwidth are those of nccl-tests: size is the longer buffer's,
// busbw = algbw * (2 (W - 1) / W for all_reduce, (W - 1) / W for reduce_scatter and all_gather, 1 for broadcast).
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "mesh.h"
#include "mpi/runtime.h"

namespace zt::comm {

namespace {

struct Options {
  std::vector<std::string> ops{"all_reduce", "reduce_scatter", "all_gather", "broadcast"};
  uint64_t min = 8, max = uint64_t{64} << 20;
  int iterations = 20;
  bool is_async = false;
  std::string json;
};

// One collective on float buffers: how to call it either way, and what comes out. `in` holds rank + 1 everywhere.
struct Subject {
  std::string name;
  double bus_factor;
  int64_t out_count, in_count;
  float expected;
  std::function<Work(Communicator&, const at::Tensor& out, const at::Tensor& in, Async)> ours;
  std::function<void(float* out, float* in)> raw;
};

Subject make_subject(const std::string& name, int64_t bytes, int rank, int size) {
  const int64_t count = std::max<int64_t>(1, bytes / 4 / size) * size, part = count / size;
  const auto n = static_cast<int>(count), p = static_cast<int>(part);
  const double share = static_cast<double>(size - 1) / size;
  const float sum = static_cast<float>(size * (size + 1)) / 2;
  if (name == "all_reduce") {
    return {name,
            2 * share,
            count,
            count,
            sum,
            [](auto& comm, auto& out, auto& in, Async a) { return comm.all_reduce(out, in, ReduceOp::sum, a); },
            [=](float* out, float* in) { MPI_Allreduce(in, out, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }};
  }
  if (name == "reduce_scatter") {
    return {name,
            share,
            part,
            count,
            sum,
            [](auto& comm, auto& out, auto& in, Async a) { return comm.reduce_scatter(out, in, ReduceOp::sum, a); },
            [=](float* out, float* in) { MPI_Reduce_scatter_block(in, out, p, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }};
  }
  if (name == "all_gather") {
    return {name,
            share,
            count,
            part,
            0,
            [](auto& comm, auto& out, auto& in, Async a) { return comm.all_gather(out, in, a); },
            [=](float* out, float* in) { MPI_Allgather(in, p, MPI_FLOAT, out, p, MPI_FLOAT, MPI_COMM_WORLD); }};
  }
  return {name,
          1,
          count,
          count,
          1,
          [=](auto& comm, auto& out, auto& in, Async a) {
            if (rank == 0) out.copy_(in);
            return comm.broadcast(out, 0, a);
          },
          [=](float* out, float* in) {
            if (rank == 0) std::copy_n(in, count, out);
            MPI_Bcast(out, n, MPI_FLOAT, 0, MPI_COMM_WORLD);
          }};
}

int64_t count_wrong(const Subject& subject, const at::Tensor& out, int size) {
  if (subject.name != "all_gather") return out.ne(subject.expected).sum().item<int64_t>();
  const auto expected = at::arange(1, size + 1).to(at::kFloat).unsqueeze(1);
  return out.reshape({size, -1}).ne(expected).sum().item<int64_t>();
}

// Microseconds on the slowest rank, median.
double median_of_slowest(std::vector<double> times) {
  MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size()) / 2, times.end());
  return times[times.size() / 2];
}

template <class Call>
double timed(Call call) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  call();
  return (MPI_Wtime() - start) * 1e6;
}

nlohmann::json measure(Communicator& comm, const Subject& subject, const Options& options) {
  const auto in = at::full({subject.in_count}, static_cast<float>(comm.rank() + 1));
  const auto out = at::zeros({subject.out_count});
  const Async async = options.is_async ? Async::yes : Async::no;
  std::vector<double> ours, raw;
  int64_t wrong = 0;
  for (int i = -2; i < options.iterations; ++i) {
    const double our_time = timed([&] { subject.ours(comm, out, in, async).wait(); });
    if (i == -2) wrong = count_wrong(subject, out, comm.size());
    const double raw_time = timed([&] { subject.raw(out.data_ptr<float>(), in.data_ptr<float>()); });
    if (i < 0) continue;  // warm-up
    ours.push_back(our_time);
    raw.push_back(raw_time);
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  const int64_t count = std::max(subject.in_count, subject.out_count);
  return {{"op", subject.name},
          {"bytes", count * 4},
          {"count", count},
          {"ranks", comm.size()},
          {"bus_factor", subject.bus_factor},
          {"us", median_of_slowest(ours)},
          {"mpi_us", median_of_slowest(raw)},
          {"wrong", wrong}};
}

void print_row(const nlohmann::json& row) {
  const double bytes = row["bytes"], factor = row["bus_factor"];
  const auto columns = [&](double us) {
    return fmt::format("{:>10.1f} {:>8.2f} {:>8.2f}", us, bytes / us / 1e3, bytes / us / 1e3 * factor);
  };
  const double us = row["us"], mpi_us = row["mpi_us"];
  const int64_t count = row["count"], wrong = row["wrong"];
  fmt::print("{:>12} {:>12} {:>6} {:>15} {} {:>6}   {} {:>7.2f}\n", static_cast<int64_t>(bytes), count, "float",
             row["op"].get<std::string>(), columns(us), wrong, columns(mpi_us), mpi_us / us);
  std::fflush(stdout);
}

int64_t run(const World& world, const Options& options) {
  std::vector<int> ranks(static_cast<size_t>(world.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto comm = make_communicator(world, "mpi", {"world", world.rank, ranks});
  const char* head = "{:>12} {:>12} {:>6} {:>15} {:>10} {:>8} {:>8} {:>6}   {:>10} {:>8} {:>8} {:>7}\n";
  if (world.rank == 0) {
    fmt::print(fmt::runtime(head), "size", "count", "type", "op", "time", "algbw", "busbw", "#wrong", "MPI time", "algbw",
               "busbw", "speedup");
    fmt::print(fmt::runtime(head), "(B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  }
  auto rows = nlohmann::json::array();
  int64_t wrong = 0;
  for (const auto& op : options.ops) {
    for (uint64_t bytes = options.min; bytes <= options.max; bytes *= 4) {
      rows.push_back(measure(*comm, make_subject(op, static_cast<int64_t>(bytes), world.rank, world.size), options));
      if (world.rank == 0) print_row(rows.back());
      wrong += rows.back()["wrong"].get<int64_t>();
    }
  }
  if (world.rank == 0 && !options.json.empty()) std::ofstream(options.json) << rows.dump(1) << "\n";
  return wrong;
}

}  // namespace

}  // namespace zt::comm

int main(int argc, char** argv) {
  zt::comm::Options options;
  CLI::App app("Times collectives beside raw MPI; run it under mpirun.");
  app.add_option("--op", options.ops, "Collectives")->check(CLI::IsMember(options.ops));
  app.add_option("--min", options.min, "Smallest size in bytes")->transform(CLI::AsSizeValue(false));
  app.add_option("--max", options.max, "Largest size in bytes; sizes grow by 4")->transform(CLI::AsSizeValue(false));
  app.add_option("--iterations", options.iterations, "Timed calls for each size")->check(CLI::PositiveNumber);
  app.add_flag("--async", options.is_async, "Start each call with Async::yes and wait: the communication thread's speed");
  app.add_option("--json", options.json, "Also write the rows to this file");
  CLI11_PARSE(app, argc, argv);
  const zt::World world = zt::World::from_environment();
  if (world.launch != zt::Launch::mpi) {
    fmt::print(stderr, "comm_bench needs mpirun: mpirun -n 2 {}\n", argv[0]);
    return 2;
  }
  const int64_t wrong = zt::comm::run(world, options);
  zt::run_shutdown_actions();
  return wrong == 0 ? 0 : 1;
}
