// Tests headers of safetensors files with random damage.
#include <sys/resource.h>

#include <algorithm>
#include <random>

#include "safetensors/safetensors.h"
#include "safetensors_support.h"
#include "zt/base/error.h"

namespace zt::ckpt::safetensors {
namespace {

// Numbers that tend to break readers, and punctuation that changes how the following text is parsed.
std::string mutated(std::string text, std::mt19937& random) {
  static const std::string pieces[] = {"-1",
                                       "0",
                                       "9223372036854775807",
                                       "18446744073709551616",
                                       "1e400",
                                       "[",
                                       "]",
                                       "{",
                                       "}",
                                       "\"",
                                       ",",
                                       ":",
                                       "\\u0000",
                                       "null",
                                       "\xff",
                                       "F64",
                                       "BOOL"};
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  for (size_t edits = 1 + below(3); edits > 0 && !text.empty(); --edits) {
    const size_t at = below(text.size()), count = std::min(below(12), text.size() - at);
    switch (below(5)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, count);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), count));
        break;
      case 3:
        text.insert(at, pieces[below(std::size(pieces))]);
        break;
      default:
        text.resize(at);
        break;
    }
  }
  return text;
}

int64_t peak_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

// Parsing a damaged header either throws a Fault or gives tensors that fill the file. A number in the header never decides how
// much is allocated. The bound on memory leaves room for a sanitizer's own.
TEST(SafetensorsMutations, TenThousandMutationsAreFaultsOrValid) {
  const test::Bytes file = test::golden_bytes("llama_tied/model.safetensors");
  const int64_t head_size = header_bytes(file, std::ssize(file), "golden"), data = std::ssize(file) - head_size;
  const std::string good(reinterpret_cast<const char*>(file.data()) + kPrefix, head_size - kPrefix);
  std::mt19937 random(17);
  const int64_t peak_before = peak_memory();
  int faults = 0, valid = 0;
  for (int i = 0; i < 10'000; ++i) {
    test::Bytes bytes = test::head(mutated(good, random));
    if (i % 10 == 0) bytes[random() % kPrefix] ^= std::byte{1} << (random() % 8);
    const int64_t file_bytes = std::ssize(bytes) + data;
    bytes.resize(file_bytes);
    try {
      const FileHeader header = parse_header(bytes, file_bytes, "mutated");
      int64_t at = header_bytes(bytes, file_bytes, "mutated");
      for (const Tensor& tensor : header.tensors) {
        ASSERT_EQ(tensor.begin, at);
        ASSERT_EQ(tensor.end - tensor.begin, tensor_bytes(tensor));
        at = tensor.end;
      }
      ASSERT_EQ(at, file_bytes);
      ++valid;
    } catch (const Fault&) {
      ++faults;
    }
  }
  EXPECT_GT(faults, 8000);
  EXPECT_GT(valid, 20);  // for example, a changed letter of a name leaves the header valid
  EXPECT_LT(peak_memory() - peak_before, int64_t{512} << 20);
}

}  // namespace
}  // namespace zt::ckpt::safetensors
