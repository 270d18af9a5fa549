#include "saver.h"

#include <algorithm>
#include <chrono>
#include <future>

#include "format/check.h"
#include "format/master.h"
#include "hdf5/names.h"
#include "shard_writer.h"
#include "zt/base/error.h"
#include "zt/io/hash.h"
#include "zt/io/io_errors.h"
#include "zt/io/small_files.h"

namespace zt::ckpt {

namespace {

constexpr int64_t kDiskBlock = 4096;  // bytes: the unit in which file systems allocate space
constexpr int64_t kAlignment = 16;    // bytes: a multiple of every element's size
// Bytes on the disk that a save takes besides its files: the folders, and `latest` with its next version.
constexpr int64_t kFolderBytes = 8 * kDiskBlock;

int64_t on_disk(int64_t bytes) {
  return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

// Returns the index of the pieces that the ranks wrote. records: one per rank.
MasterIndex make_index(const WriteLayout& layout, std::vector<ShardRecord> records, const Value::Table& values) {
  MasterIndex index{.shards = {}, .tensors = layout.tensors, .values = values};
  for (size_t r = 0; r < layout.by_rank.size(); ++r) {
    if (layout.by_rank[r].empty()) continue;
    add_shard(index, shard_file(static_cast<int64_t>(r)), std::move(records[r]), layout.by_rank[r]);
  }
  return index;
}

// Returns the size of the master file before the shards are written. The number of checksums and offsets is known by then and
// decides the size; their values are made up. Throws Misuse for names and values that a master file cannot hold.
int64_t predict_master_bytes(const WriteLayout& layout, const Value::Table& values) {
  std::vector<ShardRecord> records;
  for (const auto& writes : layout.by_rank) {
    ShardRecord& record = records.emplace_back();
    for (const Write& write : writes) {
      const auto element = static_cast<int64_t>(c10::elementSize(layout.tensors[static_cast<size_t>(write.tensor)].dtype));
      record.offsets.push_back(record.bytes);
      record.bytes += (write.region.count * element + kAlignment - 1) / kAlignment * kAlignment;
      record.checksums.emplace_back(static_cast<size_t>(io::checksum_blocks(write.region.count * element)));
    }
  }
  const MasterIndex index = make_index(layout, std::move(records), values);
  if (const auto problem = problem_of_names(index)) misuse("this cannot be saved: {}", *problem);
  return static_cast<int64_t>(make_master(index).size());
}

}  // namespace

// One save, from the snapshot to the commit.
struct Saver::Job {
  std::string root;
  int64_t step = 0;
  Retention retention;
  Value::Table values;
  std::string partial;          // name of its folder until the commit
  std::vector<ShardData> data;  // per write
  std::future<void> result;     // of writing it: by a thread for an asynchronous save, otherwise in wait(). Waits when destroyed
  std::promise<void> may_run;   // lets the thread write. Declared last: a promise that is destroyed unkept ends the thread

  bool is_done() const { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
};

Saver::Saver(std::shared_ptr<io::FileSystem> files, Ranks ranks)
    : files_(std::move(files)), ranks_(std::move(ranks)), background_(ranks_.duplicate("ckpt")) {
  // A rank may have to wait for the slowest disk of all ranks.
  background_.set_timeout(std::chrono::hours(2));
}

Saver::~Saver() = default;

void Saver::wait() {
  if (const auto job = std::move(job_)) job->result.get();
}

// Makes a new layout and image if the structure changed on any rank.
void Saver::update_layout(const Contents& contents, std::string structure) {
  if (!ranks_.any(!image_ || structure != structure_)) return;
  WriteLayout layout = make_write_layout(ranks_, structure);
  std::unique_ptr<ShardImage> image;
  ranks_.together([&] {
    std::vector<ShardDataset> datasets;
    std::map<std::string, size_t> pieces;
    for (const Write& write : layout.writes) {
      const TensorPart& part = contents.parts[write.part];
      datasets.push_back({piece_path(part.name, pieces[part.name]++), part.dtype(), write.region.count});
    }
    image = std::make_unique<ShardImage>(datasets);
  });
  layout_ = std::move(layout);
  image_ = std::move(image);
  structure_ = std::move(structure);
}

// Makes the folder of a new save and returns its name. Throws a Fault if the disk has too little space. master: bytes of the
// master file, on rank 0.
std::string Saver::open_folder(const std::string& root, int64_t step, int64_t master) const {
  const auto sizes = ranks_.gather(std::to_string(layout_.writes.empty() ? 0 : image_->bytes()));
  std::string partial;
  ranks_.on_rank_zero([&] {
    int64_t needed = on_disk(master) + kFolderBytes;
    for (const std::string& size : sizes) needed += on_disk(std::stoll(size));
    with_disk_advice([&] {
      make_folders(*files_, root);
      const int64_t free =
          io::retry_or_fault(*files_, "ask for the free space of", root, [&] { return files_->free_bytes(root); });
      if (free < needed) io::io_fault(*files_, "save a checkpoint in", root, -ENOSPC, needed);
      partial = begin(*files_, root, step);
    });
  });
  return ranks_.broadcast(partial);
}

bool Saver::save(const std::string& root, int64_t step, const Objects& objects, const SaveOptions& options) {
  if (options.when_busy == WhenBusy::skip && ranks_.any(job_ && !job_->is_done())) return false;
  wait();
  Contents contents;
  std::string structure;
  ranks_.together([&] {
    if (step < 0) misuse("a checkpoint cannot be that of step {}: steps are counted from 0", step);
    contents = contents_of(objects, ranks_.rank() == 0 ? ValueTensors::saved : ValueTensors::referred);
    structure = structure_of(contents);
  });
  update_layout(contents, std::move(structure));
  int64_t master = 0;
  ranks_.on_rank_zero([&] { master = predict_master_bytes(layout_, contents.values); });
  auto job = std::make_unique<Job>(root, step, options.retention, contents.values);
  ranks_.together([&] { take_snapshot(*job, contents, options.mode); });
  job->partial = open_folder(root, step, master);
  job_ = std::move(job);
  job_->may_run.set_value();
  if (options.mode == SaveMode::blocking) wait();
  return true;
}

// At its end, also after an error, nothing of what was saved is kept from being changed any more.
struct Saver::ReleasedData {
  std::vector<ShardData>& data;
  ~ReleasedData() { data.clear(); }
};

// Fills job.data, which stay unchanged until the job is done, and job.result. For an asynchronous save, starts the thread, which
// waits for may_run.
void Saver::take_snapshot(Job& job, const Contents& contents, SaveMode mode) const {
  bool is_on_host = true;
  for (const Write& write : layout_.writes) {
    const TensorPart& part = contents.parts[write.part];
    if (part.source) {
      job.data.push_back({.source = part.source, .first = write.first, .count = write.region.count});
      continue;
    }
    job.data.push_back({.tensor = part.data.narrow(0, write.first, write.region.count)});
    is_on_host = is_on_host && job.data.back().tensor.is_cpu();
  }
  keep_sources(*image_, job.data);
  if (mode == SaveMode::async || !is_on_host) copy_into(*image_, job.data);
  const auto policy = mode == SaveMode::async ? std::launch::async : std::launch::deferred;
  job.result = std::async(policy, [this, &job, may_run = job.may_run.get_future()]() mutable {
    may_run.get();
    const ReleasedData released{job.data};
    write(job);
  });
}

// Writes the shards of all ranks, then the master file, and then commits.
void Saver::write(const Job& job) const {
  std::string record;
  try {
    background_.together([&] {
      if (layout_.writes.empty()) return;
      const std::string path = job.root + "/" + job.partial + "/" + shard_file(background_.rank());
      with_disk_advice([&] { record = write_shard(*files_, path, *image_, job.data).packed(); });
    });
    const auto records = background_.gather(record);
    background_.on_rank_zero([&] { finish(job, records); });
  } catch (const Error&) {
    // An incomplete folder only takes space. If it cannot be removed, its name marks it as partial.
    if (background_.rank() == 0) discard(*files_, job.root + "/" + job.partial);
    throw;
  }
}

void Saver::finish(const Job& job, const std::vector<std::string>& packed) const {
  // Ranks without writes sent an empty text.
  std::vector<ShardRecord> records(packed.size());
  for (size_t r = 0; r < packed.size(); ++r) {
    if (!layout_.by_rank[r].empty()) records[r] = ShardRecord::unpacked(packed[r]);
  }
  const auto master = make_master(make_index(layout_, std::move(records), job.values));
  with_disk_advice([&] {
    io::write_small(*files_, job.root + "/" + job.partial + "/" + kMaster, master);
    commit(*files_, job.root, job.partial, job.step);
  });
  try {
    retain(*files_, job.root, job.retention);
  } catch (const Error& error) {
    background_.warn(fmt::format("an old checkpoint in '{}' cannot be removed: {}", job.root, error.what()));
  }
}

}  // namespace zt::ckpt
