#include <chrono>
#include <cmath>
#include <fstream>
#include <set>

#include "ckpt/support/saved.h"
#include "hdf5/image.h"
#include "hdf5/tree.h"
#include "hdf5/types.h"
#include "zt/base/tensor.h"

namespace zt::ckpt {

namespace {

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar,
                                      at::kShort, at::kInt,    at::kLong, at::kByte,     at::kBool};

std::span<const std::byte> bytes_of(ShardImage& image) {
  return {image.data(), static_cast<size_t>(image.bytes())};
}

// Returns a dataset as libhdf5 reads it, in the file's type.
std::vector<std::byte> read_dataset(hid_t file, const std::string& path) {
  const Handle dataset(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose, "open a dataset");
  const Handle type(H5Dget_type(dataset), H5Tclose, "read a type"), space(H5Dget_space(dataset), H5Sclose, "read a shape");
  std::vector<std::byte> bytes(static_cast<size_t>(H5Sget_simple_extent_npoints(space)) * H5Tget_size(type));
  checked(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, bytes.data()), "read a dataset");
  return bytes;
}

uint64_t read_checksum(hid_t file, const std::string& path) {
  const Handle attribute(H5Aopen_by_name(file, path.c_str(), "xxh3", H5P_DEFAULT, H5P_DEFAULT), H5Aclose, "open an attribute");
  uint64_t value = 0;
  checked(H5Aread(attribute, H5T_NATIVE_UINT64, &value), "read an attribute");
  return value;
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
  }
  ADD_FAILURE() << "no RssAnon in /proc/self/status";
  return 0;
}

template <class T>
void expect_widened_like_c10(at::ScalarType dtype) {
  std::vector<float> numbers(1 << 16);
  for (size_t bits = 0; bits < numbers.size(); ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    std::memcpy(reinterpret_cast<char*>(numbers.data()) + 2 * bits, &half, sizeof(half));
  }
  const Hdf5Session session;
  checked(H5Tconvert(hdf5_type(dtype), H5T_NATIVE_FLOAT, numbers.size(), numbers.data(), nullptr, H5P_DEFAULT), "convert");
  for (size_t bits = 0; bits < numbers.size(); ++bits) {
    const auto expected = static_cast<float>(T(static_cast<uint16_t>(bits), T::from_bits()));
    ASSERT_EQ(std::isnan(expected), std::isnan(numbers[bits])) << bits;
    if (std::isnan(expected)) continue;
    ASSERT_EQ(expected, numbers[bits]) << bits;
    ASSERT_EQ(std::signbit(expected), std::signbit(numbers[bits])) << bits;
  }
}

}  // namespace

TEST(CkptNames, GoThereAndBack) {
  const std::vector<std::string> keys{"",
                                      ".",
                                      "..",
                                      "a.b",
                                      "a b",
                                      "a/b",
                                      "/",
                                      "a@1",
                                      "50%",
                                      "~",
                                      "~",
                                      "~2E",
                                      "\n\t\x7F",
                                      "\xC3\xA4",
                                      "\xFF\xC3\xA4",
                                      std::string(1, '\0'),
                                      "\xED\xA0\x80"};
  std::set<std::string> links;
  for (const std::string& key : keys) {
    const std::string link = encode_key(key);
    EXPECT_EQ(decode_key(link), key);
    EXPECT_EQ(link.find_first_of(std::string_view("/@%\0", 4)), std::string::npos) << link;
    links.insert(link);
  }
  EXPECT_EQ(links.size(), std::set<std::string>(keys.begin(), keys.end()).size());
  EXPECT_EQ(encode_key("h.0.attn weight"), "h.0.attn weight") << "what needs no change has none";
  EXPECT_EQ(encode_name("a//b/."), "a/~/b/~2E");
  EXPECT_EQ(decode_name("a/~/b/~2E"), "a//b/.");
  for (const char* odd : {"a@1", "~2f", "~41", "~4", "~zz", "."}) EXPECT_EQ(decode_key(odd), std::nullopt) << odd;
  EXPECT_EQ(piece_path("model/a", 0), "/model/a");
  EXPECT_EQ(piece_path("model/a", 2), "/model/a@2");
}

TEST(CkptTypes, AreKnownAgain) {
  const Hdf5Session session;
  for (const auto dtype : kDtypes) {
    const Handle type = hdf5_type(dtype);
    EXPECT_EQ(H5Tget_size(type), c10::elementSize(dtype));
    EXPECT_EQ(dtype_of(type), dtype);
    EXPECT_EQ(type_named(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_of(H5T_IEEE_F32BE), std::nullopt);
  EXPECT_EQ(dtype_of(H5T_STD_U64LE), std::nullopt);
  EXPECT_THAT(message_of<Misuse>([] { hdf5_type(at::kComplexFloat); }), HasSubstr("ComplexFloat"));
}

TEST(CkptTypes, HaveTheNumbersOfHalves) {
  expect_widened_like_c10<c10::Half>(at::kHalf);
  expect_widened_like_c10<c10::BFloat16>(at::kBFloat16);
}

TEST(CkptImage, GrowsAndKeeps) {
  SparseMemory memory(10);
  memory.resize(10);
  memory.data()[9] = std::byte{7};
  memory.resize(int64_t{1} << 36);
  EXPECT_EQ(memory.data()[9], std::byte{7});
  EXPECT_EQ(memory.data()[(int64_t{1} << 36) - 1], std::byte{0});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 4096, 0U);
}

TEST(CkptImage, NamesWhatIsWrong) {
  const Hdf5Session session;
  const std::vector<std::byte> nothing(4096);
  EXPECT_THAT(message_of<Fault>([&] { read_image(nothing); }), HasSubstr("file signature not found"));
  EXPECT_THAT(message_of<Fault>([&] { read_image({}); }), HasSubstr("cannot open an HDF5 file"));
}

TEST(CkptImage, OpensNoFile) {
  const Folder folder;
  SparseMemory other(0), memory(0);
  const Hdf5Session session;
  create_image(other, {}).close("close");
  folder.put("other.h5", {other.data(), static_cast<size_t>(other.bytes())});
  ASSERT_GT(H5Fis_hdf5((folder / "other.h5").c_str()), 0) << "the file is sound, and is not opened all the same";
  const Handle file = create_image(memory, {});
  checked(H5Lcreate_external((folder / "other.h5").c_str(), "/", file, "link", H5P_DEFAULT, H5P_DEFAULT), "make a link");
  EXPECT_LT(H5Oopen(file, "link", H5P_DEFAULT), 0);
}

TEST(CkptShard, HoldsWhatIsPutIn) {
  std::vector<ShardDataset> datasets;
  for (const auto dtype : kDtypes) datasets.push_back({"/model/" + dtype_name(dtype), dtype, 1000});
  datasets.push_back({"/model/none", at::kFloat, 0});
  datasets.push_back({"/optimizer/exp_avg/deep/x", at::kFloat, 1});
  ShardImage image(datasets);
  std::vector<uint64_t> checksums;
  int64_t end = 0;
  for (size_t i = 0; i < datasets.size(); ++i) {
    checksums.push_back(i * 0x123456789ABCDEF);
    if (datasets[i].count == 0) continue;
    EXPECT_EQ(image.offset(i) % kDataAlignment, 0);
    EXPECT_GE(image.offset(i), end) << "data do not overlap";
    end = image.offset(i) + datasets[i].count * static_cast<int64_t>(c10::elementSize(datasets[i].dtype));
    EXPECT_LE(end, image.bytes());
    std::memset(image.data() + image.offset(i), static_cast<int>(i + 1), static_cast<size_t>(end - image.offset(i)));
  }
  const int64_t bytes = image.bytes();
  image.set_checksums(checksums);
  for (uint64_t& checksum : checksums) checksum = ~checksum;
  image.set_checksums(checksums);
  EXPECT_EQ(image.bytes(), bytes) << "the image is changed in place";
  const Hdf5Session session;
  const Handle file = read_image(bytes_of(image));
  for (size_t i = 0; i < datasets.size(); ++i) {
    const auto count = static_cast<size_t>(datasets[i].count) * c10::elementSize(datasets[i].dtype);
    EXPECT_EQ(read_dataset(file, datasets[i].path), std::vector<std::byte>(count, static_cast<std::byte>(i + 1)));
    EXPECT_EQ(read_checksum(file, datasets[i].path), checksums[i]);
  }
}

TEST(CkptShard, HashesAllBesideData) {
  const std::vector<ShardDataset> datasets{{"/a", at::kFloat, 1025}, {"/b", at::kByte, 0}, {"/c", at::kByte, 3}};
  ShardImage image(datasets), twin(datasets);
  EXPECT_EQ(image.rest(), twin.rest()) << "equal datasets make equal images";
  std::vector<std::byte> rest;
  int64_t end = 0;
  for (const size_t i : {0U, 2U}) {
    rest.insert(rest.end(), image.data() + end, image.data() + image.offset(i));
    end = image.offset(i) + (i == 0 ? 4100 : 3);
  }
  rest.insert(rest.end(), image.data() + end, image.data() + image.bytes());
  EXPECT_EQ(image.rest(), io::xxh3(rest));
  std::memset(image.data() + image.offset(0), 1, 4100);
  EXPECT_EQ(image.rest(), twin.rest()) << "data are not part of it";
  image.set_checksums(std::vector<uint64_t>{1, 0, 0});
  EXPECT_NE(image.rest(), twin.rest()) << "checksums are";
  image.set_checksums(std::vector<uint64_t>{0, 0, 0});
  EXPECT_EQ(image.rest(), twin.rest()) << "an image that is used again is as new";
}

TEST(CkptShard, MayBeEmpty) {
  ShardImage image({});
  image.set_checksums({});
  const Hdf5Session session;
  const Handle file = read_image(bytes_of(image));
  EXPECT_EQ(H5Fget_obj_count(file, H5F_OBJ_ALL), 1);
}

// HDF5's own bytes lie before all data, however many groups the names make.
TEST(CkptShard, HasRoomForGroups) {
  std::vector<ShardDataset> many, deep{{"", at::kFloat, 3}};
  for (int layer = 0; layer < 200; ++layer) many.push_back({fmt::format("/l{}/attn/q/w", layer), at::kFloat, 5000});
  for (int i = 0; i < 150; ++i) deep[0].path += "/g";
  for (const auto& datasets : {many, deep}) {
    ShardImage image(datasets);
    for (const io::FileRange& range : std::span(image.rest_ranges()).subspan(1)) EXPECT_LT(range.bytes, kDataAlignment);
    EXPECT_GE(image.offset(0), image.rest_ranges()[0].bytes);
  }
}

TEST(CkptShard, RefusesWhatItCannotHold) {
  EXPECT_THAT(message_of<Misuse>([] { ShardImage({{"/a", at::kFloat, 1}, {"/a", at::kFloat, 1}}); }), HasSubstr("two datasets"));
  EXPECT_THAT(message_of<Misuse>([] { ShardImage({{"/a", at::kFloat, -1}}); }), HasSubstr("-1 elements"));
  EXPECT_THAT(message_of<Misuse>([] { ShardImage({{"/a", at::kComplexFloat, 1}}); }), HasSubstr("ComplexFloat"));
  ShardImage image({{"/a", at::kFloat, 1}});
  EXPECT_THAT(message_of<Misuse>([&] { image.set_checksums({}); }), HasSubstr("0 checksums"));
}

TEST(CkptShard, CostsWhatIsTouched) {
  std::vector<ShardDataset> datasets;
  for (int i = 0; i < 1000; ++i)
    datasets.push_back({fmt::format("/optimizer/exp_avg/h.{}.attn.qkv.weight", i), at::kFloat, (int64_t{100} << 30) / 4000});
  { ShardImage warm({datasets[0]}); }  // makes libhdf5 allocate memory of its own before the measurement
  const int64_t before = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  ShardImage image(datasets);
  const auto laid_out = std::chrono::steady_clock::now();
  image.set_checksums(std::vector<uint64_t>(datasets.size(), 1));
  const auto summed = std::chrono::steady_clock::now();
  const int64_t touched = resident_bytes() - before;
  EXPECT_GE(image.bytes(), int64_t{100} << 30);
  if (!kIsSanitized) {
    EXPECT_LT(touched, 16 << 20) << "libhdf5 keeps a part of it for its next file";
  }
  ASSERT_FALSE(image.rest_ranges().empty());
  EXPECT_LT(image.rest_ranges().front().bytes, 2 << 20) << "metadata are at the start";
  for (const io::FileRange& range : std::span(image.rest_ranges()).subspan(1))
    EXPECT_LT(range.bytes, kDataAlignment) << "and only there";
  using Milliseconds = std::chrono::duration<double, std::milli>;
  std::printf(
      "1000 datasets, 100 GiB: laid out in %.0f ms, checksums set in %.0f ms, %.1f MiB touched, metadata up to %.0f KiB\n",
      Milliseconds(laid_out - start).count(), Milliseconds(summed - laid_out).count(), static_cast<double>(touched) / (1 << 20),
      static_cast<double>(image.rest_ranges().front().bytes) / 1024);
}

}  // namespace zt::ckpt
