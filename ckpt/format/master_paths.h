// Paths of the index in a master file. Each is a column, that is a list; the columns of one group have equal lengths.
#pragma once

namespace zt::ckpt::master {

constexpr const char *kShardFile = "/index/shards/file", *kShardBytes = "/index/shards/bytes", *kShardRest = "/index/shards/rest";
constexpr const char *kTensorName = "/index/tensors/name", *kTensorType = "/index/tensors/dtype",
                     *kTensorDims = "/index/tensors/dims", *kTensorPieces = "/index/tensors/pieces",
                     *kTensorAttributes = "/index/tensors/attributes";
constexpr const char *kPieceShard = "/index/pieces/shard", *kPieceOffset = "/index/pieces/offset",
                     *kPieceFirst = "/index/pieces/first", *kPieceCount = "/index/pieces/count",
                     *kPieceBoxes = "/index/pieces/boxes", *kPieceChecksums = "/index/pieces/checksums";
// The items that the counts above count, for all rows one after the other.
constexpr const char *kShape = "/index/shape", *kBoxBegin = "/index/box_begin", *kBoxEnd = "/index/box_end",
                     *kChecksum = "/index/checksum";
constexpr const char* kValueName = "/index/values";

}  // namespace zt::ckpt::master
