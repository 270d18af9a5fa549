#include "zt/io/file_system.h"

namespace zt::io {

const char* phrase_for(EntryKind kind) {
  switch (kind) {
    case EntryKind::missing:
      return "missing";
    case EntryKind::file:
      return "a file";
    case EntryKind::folder:
      return "a folder";
    case EntryKind::fifo:
      return "a FIFO";
    case EntryKind::socket:
      return "a socket";
    case EntryKind::device:
      return "a device";
    case EntryKind::other:
      break;
  }
  return "neither a file nor a folder";
}

}  // namespace zt::io
