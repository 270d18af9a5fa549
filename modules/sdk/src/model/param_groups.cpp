#include "zt/model/param_groups.h"

namespace zt {

namespace {

struct GroupEntry {
  std::string match;
  std::optional<double> weight_decay;
  double lr_scale = 1;
};

GroupEntry parse_entry(const std::string& path, const Value& value) {
  return Schema<GroupEntry>(path)
      .required("match", &GroupEntry::match, "regular expression searched in the parameter's name")
      .optional("weight_decay", &GroupEntry::weight_decay,
                "weight decay of all parameters of the entry, norms and biases included", Check<double>(at_least(0)))
      .optional("lr_scale", &GroupEntry::lr_scale, "factor of the learning rate", Check<double>(at_least(0)))
      .parse(value);
}

}  // namespace

GroupTable::GroupTable(const std::string& path, const CommonOptions& options) : path_(path) {
  const double other_decay = options.decay_all ? options.weight_decay : 0;
  groups_ = {{1, options.weight_decay}, {1, other_decay}};
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const std::string entry_path = fmt::format("{}.groups[{}]", path, i + 1);
    const GroupEntry entry = parse_entry(entry_path, options.groups[i]);
    texts_.push_back(entry.match);
    patterns_.emplace_back(entry.match, entry_path + ".match");
    groups_.push_back({entry.lr_scale, entry.weight_decay.value_or(options.weight_decay)});
    groups_.push_back({entry.lr_scale, entry.weight_decay.value_or(other_decay)});
  }
}

int GroupTable::group_of(const ParamInfo& param) const {
  if (!param.trainable) return -1;
  int entry = 0;  // 0 means the defaults
  for (size_t i = 0; i < patterns_.size() && entry == 0; ++i) {
    if (patterns_[i].is_found_in(param.name)) entry = static_cast<int>(i) + 1;
  }
  return 2 * entry + (param.is_matrix ? 0 : 1);
}

void GroupTable::check(const ModelInfo& model) const {
  std::vector<bool> is_used(texts_.size());
  for (const ParamInfo& param : model.params) {
    const int entry = group_of(param) / 2;
    if (param.trainable && entry > 0) is_used[entry - 1] = true;
  }
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (is_used[i]) continue;
    misuse(
        "{}.groups[{}].match: no trainable parameter belongs to '{}': no name matches, or earlier entries match the same names{}",
        path_, i + 1, texts_[i], suggest(texts_[i], names_of(model.params, &ParamInfo::name)));
  }
}

const ParamGroup& GroupTable::at(int index) const {
  if (index < 0 || index >= size())
    misuse("there is no parameter group {}: this optimizer has groups 0 to {}", index, size() - 1);
  return groups_[index];
}

}  // namespace zt
