// Typed handles. What modules give each other travels as a shared_ptr<void> with a tag that names its SDK type.
#pragma once

#include <memory>
#include <type_traits>

namespace zt {

class Stateful;

// One object per type, defined once in the library that owns the type; compared by address.
struct Tag {
  const char* name;  // as users see it: "Layer"
  // The object as what a checkpoint walks; nullptr: objects of this type have no state to save.
  std::shared_ptr<Stateful> (*stateful)(const std::shared_ptr<void>& object) = nullptr;
};

// Specialised by ZT_OBJECT for each type that travels.
template <class T>
const Tag& tag_of();

struct Object {
  const Tag* tag = nullptr;
  std::shared_ptr<void> pointer;

  template <class T>
  static Object of(std::shared_ptr<T> value) {
    return {&tag_of<T>(), std::move(value)};
  }
  // nullptr when this holds another type.
  template <class T>
  std::shared_ptr<T> as() const {
    return tag == &tag_of<T>() ? std::static_pointer_cast<T>(pointer) : nullptr;
  }
  // nullptr when objects of this type have no state.
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

// In a header, in namespace zt: declares that T travels. In one source file ZT_DEFINE_OBJECT(T, "name") follows.
#define ZT_OBJECT(T) \
  template <>        \
  const Tag& tag_of<T>();
#define ZT_DEFINE_OBJECT(T, shown)                 \
  template <>                                      \
  const Tag& tag_of<T>() {                         \
    static constexpr Tag tag = make_tag<T>(shown); \
    return tag;                                    \
  }
