// Finds the names that a scope hides before it assigns them.
//
// jinja2 decides before a template runs where each name lives: a name that a scope assigns without reading it first is undefined
// there until the assignment, even if an outer variable of that name exists. Code in inner scopes can observe it, such as a macro
// that is called before the assignment.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "template/syntax/syntax.h"

namespace zt::data::jinja {

class NameFrames {
 public:
  NameFrames() : root_(nullptr), current_(&root_) {}
  NameFrames(const NameFrames&) = delete;
  NameFrames& operator=(const NameFrames&) = delete;

  // The names of one scope.
  class Frame {
   public:
    explicit Frame(Frame* parent) : parent_(parent), unset_(std::make_shared<std::vector<std::string>>()) {}
    // Returns the names that are undefined at the beginning of the scope. They are known after `resolve`.
    UnsetNames unset() const { return unset_; }

   private:
    friend class NameFrames;
    enum class Use : uint8_t { read, assigned, parameter };
    bool knows(const std::string& name) const { return first_uses_.count(name) > 0; }
    void resolve();

    Frame* const parent_;
    std::map<std::string, Use> first_uses_;
    int branches_ = 0;  // nesting of `if` within the scope
    std::vector<std::unique_ptr<Frame>> inner_;
    std::shared_ptr<std::vector<std::string>> unset_;
  };

  Frame& current() { return *current_; }
  // Adds a scope inside of the current one, without entering it.
  Frame& add_inner();
  void enter(Frame& frame) { current_ = &frame; }
  void leave() { current_ = current_->parent_; }
  void enter_branch() { ++current_->branches_; }
  void leave_branch() { --current_->branches_; }

  void note_read(const std::string& name) { current_->first_uses_.emplace(name, Frame::Use::read); }
  void note_parameter(const std::string& name) { current_->first_uses_.emplace(name, Frame::Use::parameter); }
  // An assignment in an `if` hides nothing, because it may not take place.
  void note_assignment(const std::string& name) {
    current_->first_uses_.emplace(name, current_->branches_ == 0 ? Frame::Use::assigned : Frame::Use::read);
  }
  // Call it after the last name of the template.
  void resolve() { root_.resolve(); }

 private:
  Frame root_;
  Frame* current_;
};

}  // namespace zt::data::jinja
