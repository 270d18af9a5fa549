// Values below a path of a master file: tables are groups, what Plain can hold are datasets.
#pragma once

#include <string>

#include "hdf5/reader.h"
#include "hdf5/tree.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Hdf5Session is held for these.

// Misuse for what a checkpoint cannot hold, saying where.
void write_value(TreeWriter& tree, const std::string& path, const Value& value);
// Fault, saying where, for what write_value does not write.
Value read_value(Reader& reader, const std::string& path);

// A table's values as attributes of an object. Misuse for one that needs a group.
void write_attributes(const TreeWriter& tree, hid_t object, const Value::Table& attributes);
// `count`: how many there should be.
Value::Table read_attributes(Reader& reader, const std::string& path, int64_t count);

}  // namespace zt::ckpt
