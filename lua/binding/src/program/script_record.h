// Tables that an action of a script reads: numbers and tensors by name.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "zt/lua/state.h"
#include "zt/program/resource.h"

namespace zt::lua {

// A table for a script that may only be read. A name in `names` without a field reads as nil; any other name is an error.
struct ScriptRecord {
  std::string name;   // "ctx.unit"
  std::string names;  // "index name master"
  Value::Table fields = {};
  std::map<std::string, ScriptRecord> parts = {};  // fields that are records
  std::string undeclared = {};                     // "full=param": fields that the action must not touch, and their resource
  struct Shown {
    std::string name;
    at::Tensor view, own;  // what the script gets of a tensor, and the tensor
  };
  std::vector<Shown> tensors = {};

  void add(const std::string& field, Value value);
  ScriptRecord& part(const std::string& field);  // the record in this field, which is made if there is none
  void add_view(const std::string& field, const at::Tensor& own);
  // Adds a tensor of a resource under its name, "grad_shard" or "state.exp_avg". An undefined one reads as nil.
  void add_tensor(const NamedTensor& named);
};

void push_record(lua_State* L, const ScriptRecord& record);
// Pushes a copy of the record at `index`, for check_unchanged.
void push_copy(lua_State* L, const ScriptRecord& record, int index);
// Throws Misuse if the script has assigned a field of the record at `index`, of which the copy at `copy` was made before, or has
// given a view other memory or another shape, which the tensor itself does not have.
void check_unchanged(lua_State* L, const ScriptRecord& record, int index, int copy);

// Lets the table on the top of the stack refuse to be read where it has no field, with the nearest name. `name`: for messages.
void refuse_unknown(lua_State* L, const char* name);

}  // namespace zt::lua
