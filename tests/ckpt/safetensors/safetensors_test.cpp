// Tests headers of safetensors files: round trips, equality with the reference writer's bytes, and refusal of wrong headers.
#include "safetensors/safetensors.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "safetensors_support.h"
#include "support/message.h"

namespace zt::ckpt::safetensors {
namespace {

using c10::ScalarType;
using test::Bytes;
using test::head;

const std::string kPath = "folder/model.safetensors";

// Parses a header with this JSON, of a file with that many bytes of data.
FileHeader parse(const std::string& json, int64_t data) {
  const Bytes bytes = head(json);
  return parse_header(bytes, std::ssize(bytes) + data, kPath);
}

// Returns the message that refuses the JSON, and checks that it names the file.
std::string refusal(const std::string& json, int64_t data) {
  const std::string said = test::message_of<Fault>([&] { parse(json, data); });
  EXPECT_CONTAINS(said, kPath);
  return said;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"dtype":"{}","shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}

// Returns the message that refuses a file of one tensor "w" with 24 bytes of data, and checks that it names the tensor.
std::string refusal_of_tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  const std::string said = refusal(R"({"w":)" + entry(dtype, shape, offsets) + "}", 24);
  EXPECT_CONTAINS(said, "tensor \"w\"");
  return said;
}

TEST(SafetensorsHeader, ReadsWhatTheFormatAllows) {
  const std::string json = R"({"b":{"dtype":"I64","shape":[],"data_offsets":[24,32]}, "__metadata__":{"format":"pt"},)"
                           R"("a":{"data_offsets":[0,24],"shape":[2,3],"dtype":"F32"},)"
                           R"("none":{"dtype":"BOOL","shape":[0,7],"data_offsets":[24,24]}}   )";
  const FileHeader header = parse(json, 32);
  const int64_t begin = header.tensors.at(0).begin;
  const std::vector<Tensor> wanted{{"a", ScalarType::Float, {2, 3}, begin, begin + 24},
                                   {"none", ScalarType::Bool, {0, 7}, begin + 24, begin + 24},
                                   {"b", ScalarType::Long, {}, begin + 24, begin + 32}};
  EXPECT_EQ(header.tensors, wanted);
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}}));
}

TEST(SafetensorsHeader, AnEmptyFileOfTensors) {
  EXPECT_EQ(parse("{}", 0), FileHeader{});
  FileHeader none;
  EXPECT_EQ(parse_header(make_header(none), kPrefix + 8, kPath), FileHeader{});
}

TEST(SafetensorsHeader, EveryTypeGoesThereAndBack) {
  FileHeader header;
  const std::pair<const char*, ScalarType> types[] = {
      {"F64", ScalarType::Double}, {"F32", ScalarType::Float}, {"F16", ScalarType::Half},  {"BF16", ScalarType::BFloat16},
      {"I64", ScalarType::Long},   {"I32", ScalarType::Int},   {"I16", ScalarType::Short}, {"I8", ScalarType::Char},
      {"U8", ScalarType::Byte},    {"BOOL", ScalarType::Bool}};
  for (const auto& [name, dtype] : types) header.tensors.push_back({name, dtype, {3, 1, 5}});
  header.metadata = {{"format", "pt"}, {"\"quoted\"", "\u00e4\n"}};
  const Bytes bytes = make_header(header);
  EXPECT_EQ(bytes.size() % 8, 0u);
  const int64_t file_bytes = header.tensors.back().end;
  EXPECT_EQ(file_bytes, std::ssize(bytes) + 15 * (8 + 8 + 4 + 4 + 2 + 2 + 2 + 1 + 1 + 1));
  EXPECT_EQ(parse_header(bytes, file_bytes, kPath), header);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (const auto& [name, dtype] : types) EXPECT_CONTAINS(text, fmt::format(R"("{}":{{"dtype":"{}")", name, name));
}

// All data begin at multiples of their elements' size, as readers need that map the file into memory.
TEST(SafetensorsHeader, DataAreAligned) {
  FileHeader header;
  for (int i = 0; i < 40; ++i) {
    const ScalarType types[] = {ScalarType::Byte, ScalarType::Double, ScalarType::BFloat16, ScalarType::Float};
    header.tensors.push_back({fmt::format("t{}", i), types[i % 4], {i % 7, 3}});
  }
  const Bytes bytes = make_header(header);
  for (const Tensor& tensor : header.tensors) EXPECT_EQ(tensor.begin % c10::elementSize(tensor.dtype), 0u) << tensor.name;
  EXPECT_EQ(parse_header(bytes, header.tensors.back().end, kPath), header);
}

// A file of the reference library is written again with the same bytes.
TEST(SafetensorsHeader, AreTheReferencesBytes) {
  for (const std::string name : {"gpt2", "llama", "llama_tied"}) {
    const Bytes file = test::golden_bytes(name + "/model.safetensors");
    FileHeader header = parse_header(file, std::ssize(file), name);
    const FileHeader read = header;
    std::shuffle(header.tensors.begin(), header.tensors.end(), std::mt19937(3));
    const Bytes again = make_header(header);
    EXPECT_EQ(header, read);
    EXPECT_EQ(again, Bytes(file.begin(), file.begin() + std::ssize(again))) << name;
    EXPECT_EQ(header_bytes(file, std::ssize(file), name), std::ssize(again));
  }
}

TEST(SafetensorsHeader, LengthsAreBounded) {
  const auto said = [](uint64_t length, int64_t file_bytes) {
    Bytes prefix(kPrefix);
    std::memcpy(prefix.data(), &length, kPrefix);
    return test::message_of<Fault>([&] { header_bytes(prefix, file_bytes, kPath); });
  };
  EXPECT_CONTAINS(said(100, 107), "its header would end at byte 108, the file has 107");
  EXPECT_EQ(said(100, 108), "no error");
  EXPECT_CONTAINS(said(100'000'001, int64_t{1} << 40), "at most 100000000 are read");
  EXPECT_CONTAINS(said(~uint64_t{0}, int64_t{1} << 40), "at most 100000000 are read");
  EXPECT_CONTAINS(said(~uint64_t{0} - 7, int64_t{1} << 40), "at most 100000000 are read");
  EXPECT_CONTAINS(said(2, 7), "it has only 7 bytes");
  EXPECT_SAYS("give the first 8 bytes", header_bytes(Bytes(7), 100, kPath));
  Bytes cut = head("{}");
  cut.pop_back();
  EXPECT_SAYS("give the first 10 bytes", parse_header(cut, 10, kPath));
}

TEST(SafetensorsHeader, RefusesWhatIsNoSuchJson) {
  const std::string good = entry("U8", "[3]", "[0,3]");
  EXPECT_CONTAINS(refusal("", 0), "there is no '{'");
  EXPECT_CONTAINS(refusal("[]", 0), "there is no '{'");
  EXPECT_CONTAINS(refusal("\xef\xbb\xbf{}", 0), "there is no '{'");
  EXPECT_CONTAINS(refusal(R"({"w":)" + good, 3), "its JSON cannot be read");
  EXPECT_CONTAINS(refusal(R"({"w":)" + good + "}x", 3), "its JSON cannot be read");
  EXPECT_CONTAINS(refusal("{\"\xff\":" + good + "}", 3), "its JSON cannot be read");
  EXPECT_CONTAINS(refusal(R"({"w":)" + good + R"(,"\u0077":)" + good + "}", 3), "has the key \"w\" twice");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","dtype":"U8","shape":[3],"data_offsets":[0,3]}})", 3),
                  "has the key \"dtype\" twice");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":{"a":1}})", 0), "\"a\" in \"__metadata__\" is no text");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":3})", 0), "\"__metadata__\" is no JSON object");
  EXPECT_CONTAINS(refusal(R"({"w":[]})", 0), "a list where none belongs");
  EXPECT_CONTAINS(refusal(R"({"w":{"a":{"b":{}}}})", 0), "objects within objects within objects");
  EXPECT_CONTAINS(refusal(R"({"w":{"shape":[[1]]}})", 0), "a list where none belongs");
  EXPECT_CONTAINS(refusal(R"({"w":)" + std::string(1'000'000, '['), 0), "a list where none belongs");
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) ones += ",1";
  EXPECT_CONTAINS(refusal(R"({"w":)" + entry("U8", "[" + ones + "]", "[0,1]") + "}", 1), "a list of more than 64 values");
}

// The file is valid but cannot be read here, so the message must not call it damaged.
TEST(SafetensorsHeader, SaysWhichDtypesAreSupported) {
  for (const std::string dtype : {"F8_E4M3", "F8_E5M2", "U16", "U32", "U64", "C64", "F4"}) {
    const std::string said = refusal_of_tensor(dtype, "[24]", "[0,24]");
    EXPECT_CONTAINS(said, fmt::format("has the dtype \"{}\", which is not supported", dtype));
    EXPECT_CONTAINS(said, "Supported are BOOL, U8, I8, I16, F16, BF16, I32, F32, F64, I64. Convert");
    EXPECT_EQ(said.find("damaged"), std::string::npos) << said;
  }
}

TEST(SafetensorsHeader, RefusesTensorsThatAreNotWhole) {
  EXPECT_CONTAINS(refusal(R"({"w":3})", 0), "tensor \"w\" is no JSON object");
  EXPECT_CONTAINS(refusal(R"({"w":{}})", 0), "tensor \"w\" has no dtype");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":4}})", 0), "tensor \"w\" has no dtype");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","shape":3}})", 0), "tensor \"w\" has no list of shape");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","shape":[3]}})", 0), "tensor \"w\" has no list of data_offsets");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3],"more":1}})", 3),
                  "has the unknown key \"more\"");
  for (const std::string size : {"-1", "1.0", "\"3\"", "null", "true", "9223372036854775808", "1e3"}) {
    EXPECT_CONTAINS(refusal_of_tensor("U8", "[" + size + "]", "[0,24]"), "has a wrong number in shape");
    EXPECT_CONTAINS(refusal_of_tensor("U8", "[24]", "[0," + size + "]"), "has a wrong number in data_offsets");
  }
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[24]", "[24]"), "has 1 data_offsets");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[24]", "[0,24,24]"), "has 3 data_offsets");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[24]", "[24,0]"), "has bytes 24 to 0");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[25]", "[0,25]"), "has bytes 0 to 25 of the 24 bytes after the header");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[3]", "[9223372036854775807,9223372036854775807]"), "of the 24 bytes after");
}

TEST(SafetensorsHeader, RefusesSizesThatDoNotAgree) {
  EXPECT_CONTAINS(refusal_of_tensor("F32", "[2,2]", "[0,24]"), "has 24 bytes, but float32[2, 2] needs 16");
  EXPECT_CONTAINS(refusal_of_tensor("F32", "[]", "[0,24]"), "has 24 bytes, but float32[] needs 4");
  EXPECT_CONTAINS(refusal_of_tensor("F64", "[1152921504606846979]", "[0,24]"), "than 64 bits can count");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[4294967296,4294967296,0]", "[0,0]"), "than 64 bits can count");
  EXPECT_CONTAINS(refusal_of_tensor("U8", "[0,4611686018427387904,4611686018427387904]", "[0,0]"),
                  "has the shape [0, 4611686018427387904, 4611686018427387904], whose sizes multiply to more bytes");
  const auto two = [](const std::string& a, const std::string& b) {
    return R"({"a":)" + entry("U8", "[4]", a) + R"(,"b":)" + entry("U8", "[4]", b) + "}";
  };
  EXPECT_EQ(parse(two("[4,8]", "[0,4]"), 8).tensors[0].name, "b");
  EXPECT_CONTAINS(refusal(two("[0,4]", "[3,7]"), 7), "tensor \"b\" begins at byte");
  EXPECT_CONTAINS(refusal(two("[0,4]", "[3,7]"), 7), "inside the tensor before it");
  EXPECT_CONTAINS(refusal(two("[0,4]", "[0,4]"), 4), "inside the tensor before it");
  EXPECT_CONTAINS(refusal(two("[0,4]", "[5,9]"), 9), "after 1 bytes of no tensor");
  EXPECT_CONTAINS(refusal(two("[1,5]", "[5,9]"), 9), "after 1 bytes of no tensor");
  EXPECT_CONTAINS(refusal(two("[0,4]", "[4,8]"), 9), "its tensors end at byte");
}

TEST(SafetensorsHeader, MessagesShowStrangeNamesShortAndHarmless) {
  const std::string name = "\\u001b[31m" + std::string(100'000, 'x');
  const std::string said = refusal("{\"" + name + "\":3}", 0);
  EXPECT_CONTAINS(said, "tensor \"\\u001b[31mxxx");
  EXPECT_LT(said.size(), 600u);
  EXPECT_LT(refusal("{\"" + std::string(100'000, 'x') + "\n\":3}", 0).size(), 600u);
}

TEST(SafetensorsHeader, MakesNoFileThatNobodyCouldRead) {
  const auto said = [](std::vector<Tensor> tensors) {
    FileHeader header{std::move(tensors), {}};
    return test::message_of<Misuse>([&] { make_header(header); });
  };
  EXPECT_CONTAINS(said({{"a", ScalarType::Float, {1}}, {"a", ScalarType::Double, {1}}}), "\"a\" occurs twice");
  EXPECT_CONTAINS(said({{"__metadata__", ScalarType::Float, {1}}}), "reserved");
  EXPECT_CONTAINS(said({{"a", ScalarType::ComplexFloat, {1}}}), "complex64, which safetensors files cannot hold");
  EXPECT_CONTAINS(said({{"a", ScalarType::Float, {-1}}}), "cannot have the shape [-1]");
  EXPECT_CONTAINS(said({{"a", ScalarType::Float, {int64_t{1} << 62}}}), "cannot have the shape");
  EXPECT_CONTAINS(said({{"a", ScalarType::Byte, {INT64_MAX}}, {"b", ScalarType::Byte, {1}}}), "cannot count all tensors' bytes");
  EXPECT_CONTAINS(said({{"a\xff", ScalarType::Float, {1}}}), "must be UTF-8");
}

}  // namespace
}  // namespace zt::ckpt::safetensors
