// Which vector instructions the hot loops use. A loop gives the same bits with each of them: the choice only decides speed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

// Compiles one function for the named instruction set, in a file that is compiled for the baseline.
#if defined(__x86_64__)
#define ZT_TARGET_AVX2 __attribute__((target("avx2,fma")))
#define ZT_TARGET_AVX512 __attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")))
#else
#define ZT_TARGET_AVX2
#define ZT_TARGET_AVX512
#endif

namespace zt {

enum class Isa : uint8_t { plain, avx2, avx512 };

constexpr auto words_of(Isa) {
  return std::array{"plain", "avx2", "avx512"};
}
constexpr const char* isa_name(Isa isa) {
  return words_of(isa)[static_cast<size_t>(isa)];
}

// kLanes numbers that are computed together. The compiler puts them into one register, or divides them among several.
template <class T, int kLanes>
using Vector [[gnu::vector_size(kLanes * sizeof(T))]] = T;

// Returns the instruction sets that this processor runs, in ascending order. `plain` is always one of them.
std::vector<Isa> supported_isas();

// Returns the widest supported instruction set, or the one that the environment variable ZT_ISA names ("plain", "avx2",
// "avx512"). The variable is read once. Throws Misuse if its value is unknown or not supported here.
Isa best_isa();

// Calls body(Form{}), compiled for `isa`. `body` must be always inlined. The types Plain, Avx2 and Avx512 are the Forms: each
// describes the registers of its instruction set.
template <class Plain, class Body>
void run_plain(const Body& body) {
  body(Plain{});
}
template <class Avx2, class Body>
ZT_TARGET_AVX2 void run_avx2(const Body& body) {
  body(Avx2{});
}
template <class Avx512, class Body>
ZT_TARGET_AVX512 void run_avx512(const Body& body) {
  body(Avx512{});
}
template <class Plain, class Avx2, class Avx512, class Body>
void run_as(Isa isa, const Body& body) {
  switch (isa) {
    case Isa::plain:
      return run_plain<Plain>(body);
    case Isa::avx2:
      return run_avx2<Avx2>(body);
    case Isa::avx512:
      return run_avx512<Avx512>(body);
  }
}

}  // namespace zt
