#include "tokens/npy.h"

#include "data/support/folder.h"
#include "zt/base/error.h"

namespace zt::data {

namespace {

using testing::HasSubstr;

std::vector<int64_t> read_all(const NpyFile& file) {
  std::vector<int64_t> all;
  file.visit(0, file.count(), [&](auto values, int64_t) { all.insert(all.end(), values.begin(), values.end()); });
  return all;
}

// Returns the bytes of an .npy file with this dictionary and data.
std::string npy(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string text = dictionary;
  const size_t prefix = major == 1 ? 10 : 12;
  text.resize((prefix + text.size()) / 64 * 64 + 64 - prefix - 1, ' ');
  text += '\n';
  std::string header = std::string("\x93NUMPY") + major + '\0';
  for (size_t byte = 0; byte < prefix - 8; ++byte) header += static_cast<char>(text.size() >> (8 * byte));
  return header + text + data;
}

const std::string kFour = std::string("\1\0\2\0\3\0\xFF\xFF", 8);
std::string dictionary(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

std::string defect_of(const std::string& bytes) {
  const Folder folder;
  const std::string path = folder.put("tokens.npy", bytes);
  const std::string message = message_of<Fault>([&] { NpyFile file(path); });
  EXPECT_THAT(message, HasSubstr(path));
  EXPECT_THAT(message, HasSubstr("ztoolkit tokenize")) << "every message says how to fix it";
  return message;
}

}  // namespace

TEST(Npy, ReadsWhatItWrites) {
  const Folder folder;
  for (const NpyType type : {NpyType::u8, NpyType::u16, NpyType::u32, NpyType::u64, NpyType::i64}) {
    for (const int n : {0, 1, 3, type == NpyType::u8 ? 256 : 1000}) {
      const std::string path = folder.put_tokens("a.npy", counting(n), type);
      const NpyFile file(path);
      EXPECT_EQ(file.type(), type);
      EXPECT_EQ(file.count(), n);
      const auto expected = counting(n);
      EXPECT_EQ(read_all(file), std::vector<int64_t>(expected.begin(), expected.end()));
      EXPECT_EQ(std::filesystem::file_size(path), static_cast<size_t>(kNpyHeaderBytes + n * item_size(type)));
    }
  }
}

TEST(Npy, AppendsInParts) {
  const Folder folder;
  NpyWriter writer(folder / "a.npy", NpyType::u16);
  for (const auto& part : {std::vector<int32_t>{1}, {}, {2, 65535}}) writer.append(part);
  EXPECT_EQ(writer.count(), 3);
  EXPECT_THAT(message_of<Misuse>([&] { writer.append(std::vector<int32_t>{65536}); }), HasSubstr("from 0 to 65535"));
  EXPECT_THAT(message_of<Misuse>([&] { writer.append(std::vector<int32_t>{-1}); }), HasSubstr("cannot write -1"));
  writer.commit();
  EXPECT_EQ(read_all(NpyFile(folder / "a.npy")), (std::vector<int64_t>{1, 2, 65535}));
}

TEST(Npy, WritesNumbersOfEveryWidth) {
  const Folder folder;
  NpyWriter writer(folder / "a.npy", NpyType::i64);
  writer.append(std::vector<int64_t>{0, int64_t{1} << 40});
  writer.append(std::vector<uint8_t>{7});
  writer.commit();
  EXPECT_EQ(read_all(NpyFile(folder / "a.npy")), (std::vector<int64_t>{0, int64_t{1} << 40, 7}));
  NpyWriter mask(folder / "m.npy", NpyType::u8);
  EXPECT_THAT(message_of<Misuse>([&] { mask.append(std::vector<int32_t>{256}); }), HasSubstr("from 0 to 255"));
}

TEST(Npy, HasNoNameBeforeCommit) {
  const Folder folder;
  {
    NpyWriter writer(folder / "a.npy", NpyType::u16);
    writer.append(std::vector<int32_t>{1, 2});
    EXPECT_EQ(folder.names(), std::vector<std::string>{"a.npy.partial"});
  }
  EXPECT_TRUE(folder.names().empty()) << "an abandoned file leaves nothing";
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const Folder folder;
  // numpy.save of array([1, 2, 3, 65535], dtype=uint16), byte for byte.
  std::string header("\x93NUMPY\x01\x00v\x00{'descr': '<u2', 'fortran_order': False, 'shape': (4,), }", 67);
  header.resize(127, ' ');
  EXPECT_EQ(read_all(NpyFile(folder.put("a.npy", header + "\n" + kFour))), (std::vector<int64_t>{1, 2, 3, 65535}));
  EXPECT_EQ(make_npy_header(NpyType::u16, 4), header + "\n");
  const std::string other = npy("{\"shape\":(4,),'fortran_order':False,'descr':'<u2'}", kFour, 2);
  EXPECT_EQ(read_all(NpyFile(folder.put("b.npy", other))), (std::vector<int64_t>{1, 2, 3, 65535}))
      << "version 2, other order of keys";
  for (const char* type : {"|u1", "<u1"}) {
    const std::string bytes = npy(dictionary(type, "(8,)"), kFour);
    EXPECT_EQ(read_all(NpyFile(folder.put("c.npy", bytes))).size(), 8U) << type;
  }
}

TEST(Npy, RefusesAnotherFormat) {
  EXPECT_THAT(defect_of(""), HasSubstr("it is empty"));
  EXPECT_THAT(defect_of("hello"), HasSubstr("not an .npy file"));
  EXPECT_THAT(defect_of("\x93NUMPX" + npy(dictionary("<u2", "(4,)"), kFour).substr(6)), HasSubstr("not an .npy file"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(4,)"), kFour, 3)), HasSubstr("version 3.0"));
}

TEST(Npy, RefusesAnotherDtypeOrShape) {
  EXPECT_THAT(defect_of(npy(dictionary("<f4", "(2,)"), kFour)), HasSubstr("dtype is '<f4'"));
  EXPECT_THAT(defect_of(npy(dictionary("<i2", "(4,)"), kFour)), HasSubstr("dtype is '<i2'"));
  EXPECT_THAT(defect_of(npy(dictionary(">u2", "(4,)"), kFour)), HasSubstr("big-endian"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(2, 2)"), kFour)), HasSubstr("shape is (2, 2)"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "()"), kFour)), HasSubstr("shape is ()"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(4,)", "True"), kFour)), HasSubstr("Fortran order"));
  EXPECT_THAT(defect_of(npy("{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (4,)}", kFour)), HasSubstr("records"));
}

TEST(Npy, RefusesAnotherLength) {
  const std::string whole = npy(dictionary("<u2", "(4,)"), kFour);
  EXPECT_THAT(defect_of(whole.substr(0, whole.size() - 1)),
              HasSubstr("cut short: its header declares 4 numbers of 2 bytes, 7 bytes follow"));
  EXPECT_THAT(defect_of(whole + "x"), HasSubstr("too long: its header declares 4 numbers of 2 bytes, 9 bytes follow"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(9223372036854775807,)"), kFour)), HasSubstr("cut short"));
  for (const size_t size : {6U, 8U, 9U, 10U, 11U, 60U})
    EXPECT_THAT(defect_of(whole.substr(0, size)), HasSubstr("cut short inside its header"));
}

TEST(Npy, RefusesADamagedHeader) {
  EXPECT_THAT(defect_of(npy("{'descr': '<u2', 'fortran_order': False}", kFour)), HasSubstr("no 'shape'"));
  EXPECT_THAT(defect_of(npy("{}", kFour)), HasSubstr("no 'descr'"));
  EXPECT_THAT(defect_of(npy("{'descr': '<u2', 'color': 3}", kFour)), HasSubstr("unknown key 'color'"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(-4,)"), kFour)), HasSubstr("a size expected"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(99999999999999999999,)"), kFour)), HasSubstr("a size expected"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(4,)", "maybe"), kFour)), HasSubstr("True or False"));
  EXPECT_THAT(defect_of(npy("{'descr: 3", kFour)), HasSubstr("a text without an end"));
  EXPECT_THAT(defect_of(npy(dictionary("<u2", "(4,)") + " 7", kFour)), HasSubstr("more text"));
  EXPECT_THAT(defect_of(npy("", kFour)), HasSubstr("'{' expected"));
  // A damaged byte anywhere in the header is refused or does not change the meaning; none may crash.
  const std::string whole = npy(dictionary("<u2", "(4,)"), kFour);
  const Folder folder;
  for (size_t i = 0; i < whole.size() - kFour.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 0x15);
    const std::string path = folder.put("damaged.npy", damaged);
    try {
      EXPECT_EQ(NpyFile(path).count(), 4);
    } catch (const Fault&) {
    }
  }
}

TEST(Npy, SaysWhichFileIsMissing) {
  EXPECT_THAT(message_of<Fault>([] { NpyFile file("/nowhere/corpus.npy"); }), HasSubstr("cannot open '/nowhere/corpus.npy'"));
  EXPECT_THAT(message_of<Fault>([] { NpyFile file("/"); }), HasSubstr("'/': it is a folder, not a regular file"));
}

TEST(Npy, ReadsLargeFilesInParts) {
  const Folder folder;
  const NpyFile file(folder.put_tokens("a.npy", counting(60000)));
  int64_t next = 7;
  file.visit(7, 59990, [&](auto values, int64_t first) {
    ASSERT_EQ(first, next);
    for (const auto value : values) ASSERT_EQ(static_cast<int64_t>(value), next++);
  });
  EXPECT_EQ(next, 59997);
}

TEST(Npy, DigestTellsArraysApart) {
  const Folder folder;
  const auto digest = [&](const std::vector<int32_t>& values, NpyType type = NpyType::u32) {
    return NpyFile(folder.put_tokens("a.npy", values, type)).digest();
  };
  std::vector<int32_t> values = counting(1000);
  const std::string expected = digest(values);
  EXPECT_EQ(expected, digest(values, NpyType::u16));
  std::swap(values[700], values[701]);
  EXPECT_NE(expected, digest(values));
  EXPECT_NE(digest(counting(999)), expected);

  values = counting(1 << 20);  // of a long array the hash takes a quarter: here also its first and its last element
  const std::string of_long = digest(values);
  for (const size_t i : {size_t{0}, values.size() - 1}) {
    ++values[i];
    EXPECT_NE(digest(values), of_long);
    --values[i];
  }
  EXPECT_EQ(digest(values), of_long);
}

// A mapped file would kill the process here, or read as zeros.
TEST(Npy, SaysThatAFileWasTruncatedWhileItWasRead) {
  const Folder folder;
  const std::string path = folder.put_tokens("a.npy", counting(20000));
  const NpyFile file(path);
  const auto read = [&](int64_t first) { file.visit(first, 10, [](auto, int64_t) {}); };
  read(19990);
  std::filesystem::resize_file(path, kNpyHeaderBytes + 2 * 19995);
  EXPECT_THAT(message_of<Fault>([&] { read(19990); }),
              testing::AllOf(HasSubstr(path), HasSubstr("was truncated while it was in use")));
  read(0);
  std::filesystem::resize_file(path, 0);
  EXPECT_THAT(message_of<Fault>([&] { read(0); }), HasSubstr("was truncated while it was in use"));
}

TEST(Npy, RefusesAHeaderWithoutAnEnd) {
  std::string huge = npy(dictionary("<u2", "(4,)") + std::string(300000, ' '), kFour, 2);
  EXPECT_THAT(defect_of(huge), HasSubstr("where at most 131072 are expected"));
}

}  // namespace zt::data
