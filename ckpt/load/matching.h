// Matches the names of a checkpoint with the names of objects. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "format/index.h"
#include "reshard/contents.h"

namespace zt::ckpt {

struct MatchOptions {
  bool strict = true;  // what does not match is an error
  // Loads only names (of the objects) in which one of these regular expressions is found; empty: all names.
  std::vector<std::string> only = {};
  // Pairs of a regular expression and a replacement ($1 ... are its groups). Applied one after the other to a name of the
  // checkpoint; the result is the name in the objects.
  std::vector<std::pair<std::string, std::string>> map = {};
  // Fills experts "P.experts.Q" [experts, ...] that the checkpoint lacks with copies of the dense MLP "P.mlp.Q" [...]. The
  // routers "P.router..." of such layers keep their initial values.
  bool upcycle = false;
};

// Applies `map` (of MatchOptions) to names. Throws Misuse for an invalid regular expression.
std::vector<std::string> renamed(std::vector<std::string> names, const std::vector<std::pair<std::string, std::string>>& map);

struct Matches {
  static constexpr int kDropped = -2;
  std::vector<int> tensors;     // per part: number of the index's tensor; -1: not loaded; kDropped: it gets zeros
  std::vector<int64_t> copies;  // per part: the number of copies of the tensor, along a new first dim; 0: the part is the tensor
  bool has_dense = false;       // experts become copies of a dense MLP
  bool could_upcycle = false;   // the index lacks experts and has dense MLPs of which they could be copies
  std::map<std::string, std::string> values;  // name in the objects -> name in the checkpoint
  std::vector<uint8_t> is_used;               // per tensor of the index, then per value: 1 if this rank uses it
  std::vector<std::string> missing, misshapen;
  std::vector<std::string> summed, dropped;   // tensors with a row per rank, saved on another layout (Visitor::rows_of_ranks)
  std::set<std::string> of_other_experts;     // "blocks.1 has 4 experts, saved with 8"
  std::set<std::string> of_other_vocabulary;  // "embedding.weight has 61 tokens, saved with 62"
  std::vector<std::string> of_another_kind;   // "trainer/optimizer is lion, saved as adamw"
};

const Value::Table& values_of(const MasterIndex& index);

// Throws Misuse for an invalid regular expression, and if the map gives two tensors or two values one name.
Matches match(const Contents& wanted, const MasterIndex& index, const MatchOptions& options);

// Returns the text of an error that lists all names that do not match, by groups; empty if all match. is_used: as in Matches, but
// 1 if any rank uses it. An unused plain value, whose name has no '/', is no error.
std::string problems(const Matches& matches, const MasterIndex& index, const std::vector<uint8_t>& is_used,
                     const MatchOptions& options);

}  // namespace zt::ckpt
