// The notes of the parsers about names: which a scope reads and assigns, and which filters and tests do not exist.
#pragma once

#include "template/syntax/name_frames.h"
#include "template/syntax/token_stream.h"

namespace zt::data::jinja {

// The names that a macro or call block gets beside its parameters if its body reads them.
struct SpecialNames {
  bool caller = false, varargs = false, kwargs = false;
};

class NameNotes {
 public:
  NameFrames& frames() { return frames_; }

  // Begins a body whose reads of special names are recorded, and ends it. They may nest; an outer body has the names of its inner
  // ones.
  void begin_body() { bodies_.emplace_back(); }
  SpecialNames end_body();

  void note_read(const std::string& name);
  // Record that the current scope assigns the names of a target, or has them as parameters. A special name that a body assigns
  // before it reads it is not special there.
  void note_assignment(const Expression& target) { note_targets(target, &NameFrames::note_assignment); }
  void note_parameters(const Expression& target) { note_targets(target, &NameFrames::note_parameter); }
  void note_assignment(const std::string& name) { note_target(name, &NameFrames::note_assignment); }
  void note_parameter(const std::string& name) { note_target(name, &NameFrames::note_parameter); }

  // Begins a loop, in which the name `loop` may not be assigned, and ends it.
  void begin_loop() { ++loops_; }
  void end_loop() { --loops_; }
  bool is_in_loop() const { return loops_ > 0; }

  // Of filters and tests that do not exist, and of those that are not supported: jinja2 complains about them only when the
  // template is rendered if they stand in an `if`. Returns the old value.
  bool set_lenient(bool lenient) { return std::exchange(lenient_, lenient); }
  void note_unknown(int line, std::string message) { unknown_.push_back({line, lenient_, std::move(message)}); }
  size_t unknown_count() const { return unknown_.size(); }
  // Makes the unknown names from the index `first` on lenient: they stand in an `if` of an expression.
  void forgive_unknown(size_t first);
  // Throws Fault for the first unknown name outside of `if`.
  void check_unknown(const TokenStream& tokens) const;

 private:
  struct UnknownName {
    int line;
    bool is_lenient;
    std::string message;
  };
  struct BodyNames {
    SpecialNames read, assigned;
  };
  using NoteFunction = void (NameFrames::*)(const std::string&);
  void note_target(const std::string& name, NoteFunction note);
  void note_targets(const Expression& target, NoteFunction note);

  NameFrames frames_;
  std::vector<BodyNames> bodies_;
  std::vector<UnknownName> unknown_;
  int loops_ = 0;
  bool lenient_ = false;
};

}  // namespace zt::data::jinja
