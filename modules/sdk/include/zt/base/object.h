// Typed handles: modules pass objects to each other as a shared_ptr<void> with a tag for its SDK type.
#pragma once

#include <memory>
#include <type_traits>

namespace zt {

class Stateful;

// Identifies a type. There is one Tag per type, defined in the library that owns the type. Tags are compared by address.
struct Tag {
  const char* name;  // for users: "Layer"
  // Returns the object's interface for checkpoints. Null means that objects of this type have no state to save.
  std::shared_ptr<Stateful> (*stateful)(const std::shared_ptr<void>& object) = nullptr;
};

// Returns the tag of T. ZT_OBJECT specialises it for each type that a handle can hold.
template <class T>
const Tag& tag_of();

struct Object {
  const Tag* tag = nullptr;
  std::shared_ptr<void> pointer;

  template <class T>
  static Object of(std::shared_ptr<T> value) {
    return {&tag_of<T>(), std::move(value)};
  }
  // Returns the object, or null if this handle holds another type.
  template <class T>
  std::shared_ptr<T> as() const {
    return tag == &tag_of<T>() ? std::static_pointer_cast<T>(pointer) : nullptr;
  }
  // Returns the object's interface for checkpoints, or null if objects of this type have no state.
  std::shared_ptr<Stateful> stateful() const { return tag && tag->stateful ? tag->stateful(pointer) : nullptr; }
};

template <class T>
constexpr Tag make_tag(const char* name) {
  if constexpr (std::is_base_of_v<Stateful, T>) {
    return {name,
            [](const std::shared_ptr<void>& object) -> std::shared_ptr<Stateful> { return std::static_pointer_cast<T>(object); }};
  } else {
    return {name};
  }
}

}  // namespace zt

// ZT_OBJECT(T), in a header and in namespace zt, lets a handle hold a T. ZT_DEFINE_OBJECT(T, "name") defines the tag, in one
// source file.
#define ZT_OBJECT(T) \
  template <>        \
  const Tag& tag_of<T>();
#define ZT_DEFINE_OBJECT(T, shown)                 \
  template <>                                      \
  const Tag& tag_of<T>() {                         \
    static constexpr Tag tag = make_tag<T>(shown); \
    return tag;                                    \
  }
