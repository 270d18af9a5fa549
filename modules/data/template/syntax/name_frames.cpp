#include "template/syntax/name_frames.h"

namespace zt::data::jinja {

NameFrames::Frame& NameFrames::add_inner() {
  current_->inner_.push_back(std::make_unique<Frame>(current_));
  return *current_->inner_.back();
}

void NameFrames::Frame::resolve() {
  for (const auto& [name, use] : first_uses_) {
    bool is_known_outside = false;
    for (const Frame* outer = parent_; outer && !is_known_outside; outer = outer->parent_) is_known_outside = outer->knows(name);
    if (use == Use::assigned && !is_known_outside) unset_->push_back(name);
  }
  for (const auto& frame : inner_) frame->resolve();
}

}  // namespace zt::data::jinja
