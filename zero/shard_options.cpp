#include "shard.h"
#include "zt/base/options.h"

namespace zt::zero {

bool ShardOptions::overlaps() const {
  return overlap.value_or(axis->link.is_on_device);
}

std::vector<std::string> ShardOptions::data_axes() const {
  std::vector<std::string> names = axis->names;
  if (replicate) names.insert(names.end(), replicate->names.begin(), replicate->names.end());
  return names;
}

bool ShardOptions::moves_parameters() const {
  const ShardOptions defaults;
  return prefetch || persist_below != defaults.persist_below || max_reuse_distance != defaults.max_reuse_distance ||
         max_live != defaults.max_live || keep != defaults.keep;
}

ShardOptions parse_shard_options(const Value& options) {
  static constexpr const char* kSharded = "at stage 3, which shards parameters";
  static constexpr auto shards_parameters = [](const ShardOptions& o) { return o.stage == 3; };
  static const auto schema =
      Schema<ShardOptions>("zero.shard")
          .required("axis", &ShardOptions::axis, "the data-parallel axis, such as mesh.dp or mesh:join{\"dp\", \"ep\"}")
          .optional("stage", &ShardOptions::stage,
                    "what is sharded over the ranks. 0: nothing, 1: optimizer state, 2: gradients too, 3: parameters too",
                    Check<int>(between(0, 3)))
          .optional("replicate", &ShardOptions::replicate,
                    "a second data-parallel axis: groups of `axis` along it hold the same shards")
          .optional("gather_bucket_bytes", &ShardOptions::gather_bucket_bytes,
                    "bucket size of gathers of parameters; unset: bucket_bytes", at_least(0))
          .only_with("at stages 1 to 3", [](const ShardOptions& o) { return o.stage > 0; })
          .optional("bucket_bytes", &ShardOptions::bucket_bytes, "small units are merged up to this size; 0: no merging",
                    Check<int64_t>(at_least(0)))
          .optional("reduce_every", &ShardOptions::reduce_every, "when gradients are summed over the ranks",
                    one_of({"step", "micro_batch"}))
          .optional("grad_dtype", &ShardOptions::grad_dtype, "dtype of gradient buffers; unset: the program's",
                    one_of({"fp32", "bf16", "fp16", "fp64"}))
          .optional("reduce_dtype", &ShardOptions::reduce_dtype, "dtype in which gradients are sent; unset: grad_dtype",
                    one_of({"fp32", "bf16", "fp16", "fp64"}))
          .optional("overlap", &ShardOptions::overlap,
                    "communication overlaps with compute, which needs more memory; unset: over nccl only")
          .optional("prefetch", &ShardOptions::prefetch,
                    "stage 3: units that are gathered ahead of their use; unset: 1 with overlap, 0 without", at_least(0))
          .only_with(kSharded, shards_parameters)
          .optional("persist_below", &ShardOptions::persist_below, "stage 3: units with fewer elements stay whole",
                    Check<int64_t>(at_least(0)))
          .only_with(kSharded, shards_parameters)
          .optional("max_reuse_distance", &ShardOptions::max_reuse_distance,
                    "stage 3: a unit stays whole if at most this many elements of other units are used before its next use",
                    Check<int64_t>(at_least(0)))
          .only_with(kSharded, shards_parameters)
          .optional("max_live", &ShardOptions::max_live,
                    "stage 3: bound of the parameter elements that are whole at the same time; 0: no bound",
                    Check<int64_t>(at_least(0)))
          .only_with(kSharded, shards_parameters)
          .optional("node_shared", &ShardOptions::node_shared,
                    "ranks of one machine hold the parameters once, in memory that all read; unset: at stages 1 to 3 if the "
                    "ranks of the axis share memory")
          .optional("keep", &ShardOptions::keep,
                    "stage 3: how long a unit stays whole: during its use, from forward to backward, or while max_live has room",
                    Check<std::string>(one_of({"use", "forward", "max_live"})))
          .only_with(kSharded, shards_parameters)
          .optional("sub_group_size", &ShardOptions::sub_group_size, "most elements per slice of a STEP; 0: whole units",
                    Check<int64_t>(at_least(0)));
  ShardOptions parsed = schema.parse(options);
  if (parsed.keep == "max_live" && parsed.max_live == 0)
    misuse("zero.shard: keep = \"max_live\" keeps units whole while max_live has room: give max_live");
  if (parsed.stage == 0 && parsed.replicate)
    misuse(
        "zero.shard: replicate makes groups of ranks hold the same shards, but stage 0 has no shards: leave it out, or give a "
        "stage from 1 to 3");
  if (parsed.node_shared == true && (parsed.stage == 0 || parsed.moves_parameters()))
    misuse(
        "zero.shard: node_shared = true keeps one whole copy of the parameters per machine, at stages 1 to 3, and excludes "
        "prefetch, persist_below, max_reuse_distance, max_live and keep: leave these or node_shared out, or give another stage");
  return parsed;
}

}  // namespace zt::zero
