#include "layer_list.h"

#include "zt/base/error.h"

namespace zt::nn {

namespace {

class LayerReader {
 public:
  std::vector<NamedLayer> layers;

  // prefix: goes before the names of the entries. place: of the list, as messages show it; empty for the outermost list.
  void read(const Value::List& list, const std::string& prefix, const std::string& place) {
    for (size_t i = 0; i < list.size(); ++i) {
      read_entry(list[i], prefix, i, place.empty() ? std::to_string(i + 1) : fmt::format("{}[{}]", place, i + 1));
    }
  }

 private:
  void read_entry(const Value& entry, const std::string& prefix, size_t index, const std::string& place) {
    const std::string* name = name_of(entry);
    const auto* list = entry.get_if<Value::List>();
    if (name && list->size() == 2) return read_pair(*name, (*list)[1], prefix, place);
    if (!name && add(entry, prefix + std::to_string(index), place)) return;
    misuse("entry {} must be a layer or {{\"name\", layer}}, where a list of such entries may stand for the layer; got {}", place,
           shown(entry));
  }

  void read_pair(const std::string& name, const Value& value, const std::string& prefix, const std::string& place) {
    if (name.empty()) misuse("entry {} has an empty name: the names of its parameters begin with it", place);
    if (add(value, prefix + name, place + "[2]")) return;
    misuse("entry {}, after the name '{}', must be a layer or a list of entries, got {}", place + "[2]", name, shown(value));
  }

  // Adds a layer, or the layers of a list. Returns false for another value.
  bool add(const Value& value, const std::string& name, const std::string& place) {
    const auto* object = value.get_if<Object>();
    const auto* list = value.get_if<Value::List>();
    if (const auto layer = object ? object->as<Layer>() : nullptr) layers.push_back({name, layer});
    else if (list && !name_of(value)) add_list(*list, name, place);
    else return false;
    return true;
  }

  // The layers of an inner list form a block.
  void add_list(const Value::List& list, const std::string& name, const std::string& place) {
    const size_t first = layers.size();
    read(list, name + ".", place);
    for (size_t i = first + 1; i < layers.size(); ++i) layers[i].continues = true;
  }

  // Returns the first element of a list that begins with a string, else null.
  static const std::string* name_of(const Value& value) {
    const auto* list = value.get_if<Value::List>();
    return list && !list->empty() ? list->front().get_if<std::string>() : nullptr;
  }

  // Returns what a value is, for messages. The binding reads an empty list as an empty table.
  static std::string shown(const Value& value) {
    if (name_of(value)) return fmt::format("a list of {} that begins with a string", value.get_if<Value::List>()->size());
    const auto* table = value.get_if<Value::Table>();
    return table && table->empty() ? "an empty table" : value.type_name();
  }
};

}  // namespace

std::vector<NamedLayer> read_layers(const Value::List& list) {
  LayerReader reader;
  reader.read(list, "", "");
  return std::move(reader.layers);
}

}  // namespace zt::nn
