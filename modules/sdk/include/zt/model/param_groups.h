// Parameter groups: weight decay and learning rate scale of a parameter, chosen by its name.
#pragma once

#include <string>
#include <vector>

#include "zt/base/options.h"
#include "zt/base/regex.h"
#include "zt/model/model.h"

namespace zt {

// The settings of a group of parameters.
struct ParamGroup {
  double lr_scale = 1;  // factor of the learning rate
  double weight_decay = 0;
};

// The options that every optimizer has.
struct CommonOptions {
  double lr = 0;
  double weight_decay = 0;
  bool decay_all = false;
  std::vector<Value> groups;  // tables {match =, weight_decay =, lr_scale =}
};

// Adds the common options to an optimizer's own. Options derives from CommonOptions.
template <class Options>
Schema<Options>&& common_options(Schema<Options>&& schema) {
  return std::move(schema)
      .required("lr", &Options::lr, "base learning rate, which a schedule scales", at_least(0))
      .optional("weight_decay", &Options::weight_decay, "weight decay of matrices", at_least(0))
      .optional("decay_all", &Options::decay_all, "apply weight decay to norms and biases, too")
      .optional(
          "groups", &Options::groups,
          "list of {match = pattern, weight_decay =, lr_scale =}; the first entry whose pattern is found in the name applies");
}

// Assigns parameters to groups. A pattern is an ECMAScript regular expression, searched anywhere in the parameter's name. The
// first entry that matches applies. The defaults apply to parameters without an entry and to settings that an entry does not
// have: lr_scale 1; the optimizer's weight decay for matrices; no weight decay for norms and biases (ParamInfo::is_matrix is
// false) unless decay_all is set. Immutable after construction.
class GroupTable {
 public:
  // Messages start with `path`, for example "optim.adamw". Throws Misuse if an entry or a pattern is wrong.
  GroupTable(const std::string& path, const CommonOptions& options);

  // Returns the index of the parameter's group, or -1 for a frozen parameter.
  int group_of(const ParamInfo& param) const;
  // Throws Misuse if an entry has no trainable parameter: its pattern matches no name, or earlier entries match the same names.
  void check(const ModelInfo& model) const;
  // Throws Misuse if `index` is not a group.
  const ParamGroup& at(int index) const;
  int size() const { return static_cast<int>(groups_.size()); }

 private:
  std::string path_;
  std::vector<std::string> texts_;  // texts of the patterns
  std::vector<Regex> patterns_;
  std::vector<ParamGroup> groups_;  // two per entry (matrices, other parameters); the first two are the defaults
};

}  // namespace zt
