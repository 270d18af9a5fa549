#include "template/syntax/name_notes.h"

namespace zt::data::jinja {

namespace {

bool* flag_of(SpecialNames& names, const std::string& name) {
  return name == "caller" ? &names.caller : name == "varargs" ? &names.varargs : name == "kwargs" ? &names.kwargs : nullptr;
}

}  // namespace

SpecialNames NameNotes::end_body() {
  const SpecialNames names = bodies_.back().read;
  bodies_.pop_back();
  return names;
}

void NameNotes::note_read(const std::string& name) {
  frames_.note_read(name);
  for (BodyNames& body : bodies_) {
    bool* const assigned = flag_of(body.assigned, name);
    if (assigned && !*assigned) *flag_of(body.read, name) = true;
  }
}

void NameNotes::note_target(const std::string& name, NoteFunction note) {
  (frames_.*note)(name);
  for (BodyNames& body : bodies_)
    if (bool* const assigned = flag_of(body.assigned, name)) *assigned = true;
}

void NameNotes::note_targets(const Expression& target, NoteFunction note) {
  if (const auto* name = std::get_if<NameExpr>(&target.node)) return note_target(name->name, note);
  if (const auto* attribute = std::get_if<NamespaceTarget>(&target.node)) return frames_.note_read(attribute->name);
  for (const ExpressionPtr& item : std::get<SequenceExpr>(target.node).items) note_targets(*item, note);
}

void NameNotes::forgive_unknown(size_t first) {
  for (size_t i = first; i < unknown_.size(); ++i) unknown_[i].is_lenient = true;
}

void NameNotes::check_unknown(const TokenStream& tokens) const {
  for (const UnknownName& unknown : unknown_)
    if (!unknown.is_lenient) tokens.fail_at(unknown.line, "{}", unknown.message);
}

}  // namespace zt::data::jinja
