// Which saved thing goes where: names of a checkpoint against names of objects. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "format/index.h"
#include "reshard/contents.h"

namespace zt::ckpt {

struct MatchOptions {
  bool strict = true;  // what does not match is an error
  // Load only what has a name (of the objects) in which one of these regular expressions is found; empty: everything.
  std::vector<std::string> only;
  // Of a name in the checkpoint in which the regular expression is found, that part is replaced ($1 ... are its groups), rule
  // after rule; the result is the name in the objects.
  std::vector<std::pair<std::string, std::string>> map;
};

// What `map` (of MatchOptions) makes of names. Misuse for what is no regular expression.
std::vector<std::string> renamed(std::vector<std::string> names, const std::vector<std::pair<std::string, std::string>>& map);

struct Matches {
  std::vector<int> tensors;                   // for each part of the contents: which of the index, -1: left as it is
  std::map<std::string, std::string> values;  // name in the objects -> name in the checkpoint
  std::vector<uint8_t> is_used;               // by this rank: the index's tensors, then its values
  std::vector<std::string> missing, misshapen;
  std::vector<std::string> of_another_kind;  // "trainer/optimizer is lion, saved as adamw"
};

const Value::Table& values_of(const Index& index);

// Misuse for an expression that is none, and when the map gives two things one name.
Matches match(const Contents& wanted, const Index& index, const MatchOptions& options);

// What is wrong with a load, by groups, for an error; empty: nothing. `is_used`: by any rank. Plain values, whose names have no
// '/', need not be asked for.
std::string problems(const Matches& matches, const Index& index, const std::vector<uint8_t>& is_used,
                     const MatchOptions& options);

}  // namespace zt::ckpt
