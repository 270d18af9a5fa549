#include <chrono>
#include <limits>

#include "ckpt/support/saved.h"
#include "format/user_block.h"
#include "hdf5/image.h"
#include "zt/base/object.h"
#include "zt/reshard/reshard.h"

namespace zt::ckpt {

namespace {

// Expects values that are equal in kind and in every bit.
void expect_equal(const Value& a, const Value& b, const std::string& where) {
  ASSERT_EQ(a.data().index(), b.data().index()) << where << ": " << a.type_name() << " and " << b.type_name();
  if (const auto* table = a.get_if<Value::Table>()) {
    const auto& other = *b.get_if<Value::Table>();
    ASSERT_EQ(table->size(), other.size()) << where;
    for (const auto& [key, item] : *table) {
      ASSERT_TRUE(other.contains(key)) << where << ": " << key;
      expect_equal(item, other.at(key), where + "." + key);
    }
  } else if (const auto* list = a.get_if<Value::List>()) {
    const auto& other = *b.get_if<Value::List>();
    ASSERT_EQ(list->size(), other.size()) << where;
    for (size_t i = 0; i < list->size(); ++i) expect_equal((*list)[i], other[i], fmt::format("{}[{}]", where, i));
  } else if (const auto* number = a.get_if<double>()) {
    EXPECT_EQ(std::memcmp(number, b.get_if<double>(), sizeof(double)), 0) << where;
  } else if (const auto* integer = a.get_if<int64_t>()) {
    EXPECT_EQ(*integer, *b.get_if<int64_t>()) << where;
  } else if (const auto* truth = a.get_if<bool>()) {
    EXPECT_EQ(*truth, *b.get_if<bool>()) << where;
  } else if (const auto* text = a.get_if<std::string>()) {
    EXPECT_EQ(*text, *b.get_if<std::string>()) << where;
  } else {
    EXPECT_TRUE(a.is_nil()) << where;
  }
}

void expect_equal(const SavedPiece& a, const SavedPiece& b, const std::string& where) {
  EXPECT_EQ(a.shard, b.shard) << where;
  EXPECT_EQ(a.offset, b.offset) << where;
  EXPECT_EQ(a.region.first, b.region.first) << where;
  EXPECT_EQ(a.region.count, b.region.count) << where;
  EXPECT_EQ(a.checksums, b.checksums) << where;
  ASSERT_EQ(a.region.boxes.size(), b.region.boxes.size()) << where;
  for (size_t i = 0; i < a.region.boxes.size(); ++i) {
    EXPECT_EQ(a.region.boxes[i].begin, b.region.boxes[i].begin) << where;
    EXPECT_EQ(a.region.boxes[i].end, b.region.boxes[i].end) << where;
  }
}

void expect_equal(const MasterIndex& a, const MasterIndex& b) {
  ASSERT_EQ(a.shards.size(), b.shards.size());
  for (size_t i = 0; i < a.shards.size(); ++i) {
    EXPECT_EQ(a.shards[i].file, b.shards[i].file);
    EXPECT_EQ(a.shards[i].bytes, b.shards[i].bytes);
    EXPECT_EQ(a.shards[i].rest, b.shards[i].rest);
  }
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    const SavedTensor &x = a.tensors[i], &y = b.tensors[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.dtype, y.dtype) << x.name;
    EXPECT_EQ(x.shape, y.shape) << x.name;
    expect_equal(x.attributes, y.attributes, x.name);
    ASSERT_EQ(x.pieces.size(), y.pieces.size()) << x.name;
    for (size_t k = 0; k < x.pieces.size(); ++k) expect_equal(x.pieces[k], y.pieces[k], x.name);
  }
  expect_equal(a.values, b.values, "values");
}

void expect_round_trip(const MasterIndex& index) {
  const std::vector<std::byte> file = make_master(index);
  expect_equal(index, read_master(file, "checkpoint.h5"));
  EXPECT_EQ(make_master(index), file) << "equal indices make equal bytes";
}

Value nested(int depth) {
  Value value = 1;
  for (int i = 0; i < depth; ++i)
    value = i % 2 ? Value(Value::Table{{"a", std::move(value)}}) : Value(Value::List{std::move(value), "b"});
  return value;
}

// Returns an index of one shard with one tensor, which is one piece.
MasterIndex one_tensor(const std::string& name, const std::vector<int64_t>& shape, int64_t numel) {
  MasterIndex index;
  index.shards.push_back({shard_file(0), 8192 + numel * 4, 1});
  index.tensors.push_back({name, at::kFloat, shape, Value::Table(), {}});
  index.tensors[0].pieces.push_back({0, 4096, {{whole_box(shape)}, 0, numel}, {}});
  index.tensors[0].pieces[0].checksums.resize(static_cast<size_t>(io::checksum_blocks(numel * 4)), 5);
  return index;
}

}  // namespace

TEST(CkptMaster, GivesBackWhatWasSaved) {
  expect_round_trip({});
  expect_round_trip(small_checkpoint().index);
}

TEST(CkptMaster, GivesBackValuesExactly) {
  MasterIndex index;
  const double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();
  uint64_t odd_bits = 0xFFF0000000000001;  // a signalling NaN with a sign
  double odd_nan = 0;
  std::memcpy(&odd_nan, &odd_bits, sizeof(odd_nan));
  Value::Table odd_keys;
  for (const char* key : {"", ".", "..", "/", "a/b", "a.b", " ", "list", "\xC3\xA4\xE2\x82\xAC", "\xFF", "@1", "%b", "~", "\n"})
    odd_keys[key] = key;
  index.values =
      Value::Table{{"nil", Value()},
                   {"flags", Value::List{true, false}},
                   {"true", true},
                   {"integers/min", std::numeric_limits<int64_t>::min()},
                   {"integers/max", std::numeric_limits<int64_t>::max()},
                   {"numbers", Value::List{0.0, -0.0, kInf, -kInf, kNan, odd_nan, 1e-310, 0.1}},
                   {"odd_nan", odd_nan},
                   {"minus_zero", -0.0},
                   {"one", 1.0},
                   {"empty/table", Value::Table{}},
                   {"empty/list", Value::List{}},
                   {"empty/string", ""},
                   {"strings", Value::List{"a", "", "\xC3\xA4", std::string("x\0y", 3)}},
                   {"ends", Value::List{std::string("with nul\0", 9), "b"}},
                   {"uneven strings", Value::List{std::string(20000, 'x'), "", "", "", "", ""}},
                   {"bytes", std::string("\xFF\x00\x80\x00", 4)},
                   {"long", std::string(200000, 'z')},
                   {"mixed", Value::List{1, 1.0, true, "1", Value(), Value::List{}, Value::Table{}, Value::List{Value()}}},
                   {"lists", Value::List{Value::List{1, 2}, Value::List{3.5}, Value::List{Value::List{}}}},
                   {"nils", Value::List{Value(), Value()}},
                   {"eleven", Value::List{"a", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
                   {"odd/keys", odd_keys},
                   {"odd//name.", 3},
                   {"deep", nested(kDeepestValue)},
                   {"alike", Value::Table{{"list", 3}, {"0", 1}}}};
  expect_round_trip(index);
}

TEST(CkptMaster, GivesBackTensorsOfOddShapes) {
  expect_round_trip(one_tensor("model/h.0/odd @%~ name", {}, 1));
  expect_round_trip(one_tensor("a", {0}, 0));
  expect_round_trip(one_tensor("a", {int64_t{1} << 40, 0, int64_t{1} << 22}, 0));
  expect_round_trip(one_tensor("a", std::vector<int64_t>(32, 1), 1));
  MasterIndex index = one_tensor("a", {0, 3}, 0);
  index.tensors[0].pieces.clear();
  expect_round_trip(index);
}

TEST(CkptMaster, GivesBackPiecesOfSeveralBoxes) {
  // The first piece has 5 elements of columns 1 to 3 and 3 to 4 of a [4, 4] tensor, in the order of one rank. The other pieces
  // have the rest of the tensor.
  MasterIndex index = one_tensor("w", {4, 4}, 0);
  const std::vector<Box> boxes{{{0, 1}, {4, 3}}, {{0, 3}, {4, 4}}};
  index.tensors[0].pieces = {
      {0, 4096, {boxes, 0, 5}, {1}}, {0, 8192, {boxes, 5, 7}, {2}}, {0, 4160, {{{{0, 0}, {4, 1}}}, 0, 4}, {3}}};
  index.shards[0].bytes = 9000;
  expect_round_trip(index);
}

TEST(CkptMaster, MapsSizesOf64Bits) {
  const int64_t numel = 6'000'000'000;
  MasterIndex index = one_tensor("w", {numel}, numel);
  const int64_t first = 5'000'000'001;
  auto& pieces = index.tensors[0].pieces;
  pieces = {{0, 4096, {{whole_box({numel})}, 0, first}, {}},
            {0, 4096 + 4 * first, {{whole_box({numel})}, first, numel - first}, {}}};
  for (SavedPiece& piece : pieces) piece.checksums.resize(static_cast<size_t>(io::checksum_blocks(4 * piece.region.count)));
  const std::vector<std::byte> file = make_master(index);
  expect_equal(index, read_master(file, "checkpoint.h5"));
  const Hdf5Session session;
  const Handle image = read_image(file);
  const Handle dataset(H5Dopen2(image, "/w", H5P_DEFAULT), H5Dclose, "open");
  const Handle list(H5Dget_create_plist(dataset), H5Pclose, "list");
  size_t count = 0;
  checked(H5Pget_virtual_count(list, &count), "count");
  ASSERT_EQ(count, 2U);
  const Handle space(H5Pget_virtual_vspace(list, 1), H5Sclose, "space");
  hsize_t begin = 0, last = 0;
  checked(H5Sget_select_bounds(space, &begin, &last), "bounds");
  EXPECT_EQ(begin, static_cast<hsize_t>(first));
  EXPECT_EQ(last, static_cast<hsize_t>(numel - 1));
}

TEST(CkptMaster, IsFastEnough) {
  MasterIndex index;
  const int shards = 8, tensors = 10000;
  for (int s = 0; s < shards; ++s) index.shards.push_back({shard_file(s), int64_t{1} << 40, static_cast<uint64_t>(s)});
  for (int t = 0; t < tensors; ++t) {
    const std::vector<int64_t> shape{64, 100};
    SavedTensor tensor{fmt::format("optimizer/exp_avg/h.{}.mlp.up.weight", t), at::kFloat, shape, Value::Table(), {}};
    for (int s = 0; s < shards; ++s) {
      const int64_t first = 6400 * s / shards, count = 6400 * (s + 1) / shards - first;
      tensor.pieces.push_back({s, 4096, {{whole_box(shape)}, first, count}, {static_cast<uint64_t>(t)}});
    }
    index.tensors.push_back(std::move(tensor));
  }
  using Clock = std::chrono::steady_clock;
  using Seconds = std::chrono::duration<double>;
  const auto start = Clock::now();
  const std::vector<std::byte> file = make_master(index);
  const auto made = Clock::now();
  const MasterIndex read = read_master(file, "checkpoint.h5");
  const auto end = Clock::now();
  std::printf("%d tensors over %d shards: master of %.1f MiB made in %.2f s, read in %.2f s\n", tensors, shards,
              static_cast<double>(file.size()) / (1 << 20), Seconds(made - start).count(), Seconds(end - made).count());
  expect_equal(index, read);
}

TEST(CkptMaster, RefusesWhatContradictsItself) {
  const auto refusal = [](const std::function<void(MasterIndex&)>& change) {
    MasterIndex index = small_checkpoint().index;
    change(index);
    return message_of<Misuse>([&] { make_master(index); });
  };
  const auto piece = [](MasterIndex& index) -> SavedPiece& { return index.tensors[0].pieces[0]; };
  EXPECT_THAT(refusal([](MasterIndex& index) { index.shards[0].file = "shards/../rank_00000.h5"; }),
              HasSubstr("is no name of a shard"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.shards[0].file = index.shards[1].file; }), HasSubstr("named twice"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].name = index.tensors[1].name; }), HasSubstr("have the name"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].name = "trainer/step/x"; }),
              HasSubstr("another name lies below it"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].name = "index/x"; }), HasSubstr("'index' is reserved"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].name = ""; }), HasSubstr("the empty name"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].name = std::string(2000, 'x'); }), HasSubstr("2000 bytes"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].dtype = at::kComplexFloat; }), HasSubstr("ComplexFloat"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].shape = {8, 5}; }), HasSubstr("35 of its 40 elements"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].shape = {-7, 5}; }), HasSubstr("[-7, 5]"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].shape.assign(40, 1); }), HasSubstr("40 dims"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].shape.assign(8, 1 << 16); }), HasSubstr("65536"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).shard = 3; }), HasSubstr("shard 3 of 3"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).shard = -1; }), HasSubstr("shard -1"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).offset = index.shards[0].bytes - 4; }), HasSubstr("are not in the"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).offset = -8; }), HasSubstr("are not in the"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.boxes[0].end[0] = 8; }), HasSubstr("which is not in [0, 7)"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.boxes[0].begin[0] = -1; }),
              HasSubstr("which is not in [0, 7)"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.boxes.clear(); }), HasSubstr("it has no boxes"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.count = 36; }),
              HasSubstr("it has 36 elements from number 0 on"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.count = -1; }), HasSubstr("it has -1 elements"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.first = INT64_MAX; }), HasSubstr("its boxes have 35"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).region.count = 13; }), HasSubstr("more than its 35"));
  EXPECT_THAT(refusal([&](MasterIndex& index) { piece(index).checksums.clear(); }), HasSubstr("0 checksums and 1 blocks"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.values = 3; }), HasSubstr("an integer instead of a table"));
  EXPECT_THAT(refusal([](MasterIndex& index) {
                index.values = Value::Table{{"a", nested(kDeepestValue + 1)}};
              }),
              HasSubstr("inside each"));
  EXPECT_THAT(refusal([](MasterIndex& index) {
                index.values = Value::Table{{"a", at::Tensor()}};
              }),
              HasSubstr("a tensor cannot"));
  EXPECT_THAT(refusal([](MasterIndex& index) {
                index.tensors[0].attributes = Value::Table{{"a", Value::Table{}}};
              }),
              HasSubstr("'a'"));
  EXPECT_THAT(refusal([](MasterIndex& index) { index.tensors[0].attributes = 1; }), HasSubstr("an integer instead of a table"));
}

TEST(CkptMaster, BeginsWithText) {
  const std::vector<std::byte> file = make_master({});
  const std::string text(reinterpret_cast<const char*>(file.data()), kUserBlock);
  EXPECT_TRUE(text.starts_with("ztoolkit checkpoint 1.2\nbytes 0000")) << text;
  EXPECT_TRUE(text.ends_with("\n"));
  const std::span rest = std::span(file).subspan(kUserBlock);
  EXPECT_THAT(text, HasSubstr(fmt::format("bytes {:020}\nxxh3 {:016x}\n", file.size(), io::xxh3(rest) ^ 2U)));
  const std::string old = make_user_block(rest, 1);
  EXPECT_THAT(old, HasSubstr(fmt::format("checkpoint 1.1\nbytes {:020}\nxxh3 {:016x}\n", file.size(), io::xxh3(rest))));
}

}  // namespace zt::ckpt
