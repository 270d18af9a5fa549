// Writes and reads values below a path of a master file. Tables are groups; values that encode_value can encode are datasets.
#pragma once

#include <string>

#include "hdf5/reader.h"
#include "hdf5/tree.h"
#include "zt/base/value.h"

namespace zt::ckpt {

// Requires an Hdf5Session.

// `depth`: how many tables and lists are around the value.

// Throws Misuse, with the place in the value, for a value that a checkpoint cannot hold.
void write_value(TreeWriter& tree, const std::string& path, const Value& value, int depth = 0);
// Throws a Fault, with the place in the file, for content that write_value does not write.
Value read_value(TreeReader& reader, const std::string& path, int depth = 0);

// Writes a table's values as attributes of an object. Throws Misuse for a value that needs a group.
void write_attributes(const TreeWriter& tree, hid_t object, const Value::Table& attributes);
// Throws a Fault unless the object at `path` has `count` attributes.
Value::Table read_attributes(TreeReader& reader, const std::string& path, int64_t count);

}  // namespace zt::ckpt
