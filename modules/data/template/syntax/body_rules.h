// Rules for the statements of a body that the statement around it sets.
#pragma once

#include <utility>

#include "template/syntax/name_notes.h"

namespace zt::data::jinja {

// Sets whether unknown filters are allowed, and whether `break` is, for the statements of a body; restores both at its end.
class BodyRules {
 public:
  BodyRules(NameNotes& notes, bool& in_loop, bool lenient, bool new_in_loop)
      : notes_(notes),
        in_loop_(in_loop),
        old_lenient_(notes.set_lenient(lenient)),
        old_in_loop_(std::exchange(in_loop, new_in_loop)) {}
  ~BodyRules() {
    notes_.set_lenient(old_lenient_);
    in_loop_ = old_in_loop_;
  }
  BodyRules(const BodyRules&) = delete;
  BodyRules& operator=(const BodyRules&) = delete;

 private:
  NameNotes& notes_;
  bool& in_loop_;
  bool old_lenient_, old_in_loop_;
};

}  // namespace zt::data::jinja
