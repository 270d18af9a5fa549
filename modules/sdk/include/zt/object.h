// Typed handles. What modules give each other travels as a shared_ptr<void> with a tag that names its SDK type.
#pragma once

#include <memory>

namespace zt {

// One object per type, defined once in the library that owns the type; compared by address.
struct Tag {
  const char* name;  // as users see it: "Layer"
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
};

}  // namespace zt

// In a header, in namespace zt: declares that T travels. In one source file ZT_DEFINE_OBJECT(T, "name") follows.
#define ZT_OBJECT(T) \
  template <>        \
  const Tag& tag_of<T>();
#define ZT_DEFINE_OBJECT(T, shown) \
  template <>                      \
  const Tag& tag_of<T>() {         \
    static const Tag tag{shown};   \
    return tag;                    \
  }
