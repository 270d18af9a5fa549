// Parameter groups: which weight decay and which share of the learning rate a parameter gets, by its name.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "zt/base/options.h"
#include "zt/base/regex.h"
#include "zt/model/model.h"

namespace zt::optim {

// What one group of parameters is updated with.
struct Group {
  double lr_scale = 1;  // multiplies the learning rate
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
      .required("lr", static_cast<double Options::*>(&Options::lr), "learning rate; a schedule changes it",
                Check<double>(at_least(0)))
      .optional("weight_decay", static_cast<double Options::*>(&Options::weight_decay), "decay of matrices",
                Check<double>(at_least(0)))
      .optional("decay_all", static_cast<bool Options::*>(&Options::decay_all), "decay norms and biases too")
      .optional("groups", static_cast<std::vector<Value> Options::*>(&Options::groups),
                "list of {match = pattern, weight_decay =, lr_scale =}; the first whose pattern is found in the name counts");
}

// A pattern is an ECMAScript regular expression, searched anywhere in the parameter's name; the first entry that matches
// wins. What an entry does not say, and what no entry matches, follows the defaults: lr_scale 1 and the optimizer's
// weight decay for matrices, none for norms and biases (ParamInfo::is_matrix) unless decay_all.
// Immutable once built.
class GroupTable {
 public:
  // `path` starts messages: "optim.adamw". Misuse for a wrong entry or pattern.
  GroupTable(const std::string& path, const CommonOptions& options);

  // -1 for a frozen parameter.
  int group_of(const ParamInfo& param) const;
  // Misuse for an entry that no parameter of the model belongs to: a pattern that matches no name, or after others that do.
  void check(const ModelInfo& model) const;
  // Misuse for an index that group_of does not give.
  const Group& at(int index) const;
  int size() const { return static_cast<int>(groups_.size()); }

 private:
  std::string path_;
  std::vector<std::string> texts_;  // of the patterns
  std::vector<Regex> patterns_;
  std::vector<Group> groups_;  // two an entry, the defaults first: for matrices, for the rest
};

}  // namespace zt::optim
