// The Lua binding of the module.
#include "files/disk_speed.h"
#include "files/page_multiple.h"
#include "move/move.h"
#include "move/places.h"
#include "zt/base/options.h"
#include "zt/io/posix_fs.h"
#include "zt/lua/state.h"

namespace zt::offload {

namespace {

const auto kDiskTest = Schema<DiskTest>("offload.measure_disk")
                           .required("folder", &DiskTest::folder, "the folders over which the file is striped",
                                     [](const auto& folders) { return folders.empty() ? "must name a folder" : ""; })
                           .optional("size", &DiskTest::size, "bytes of the file", at_least(1))
                           .optional("block", &DiskTest::block, "bytes of one operation", multiple_of_pages)
                           .optional("depth", &DiskTest::depth, "operations under way at once", between(1, 4096))
                           .optional("direct", &DiskTest::direct, "bypass the page cache where the file system can do so")
                           .optional("seconds", &DiskTest::seconds, "seconds of each of the three measurements", above(0));

// offload.measure_disk{folder = {"/nvme0"}, block = 2^22, depth = 8}
int measure(lua_State* L) {
  const DiskTest test = kDiskTest.parse(lua::check_value(L, 1));
  io::PosixFs files(lua::world(L));
  const DiskSpeed speed = measure_disk(files, test);
  lua::push(L, Value(Value::Table{{"read", speed.read},
                                  {"write", speed.write},
                                  {"mixed", speed.mixed},
                                  {"direct", speed.is_direct},
                                  {"pinned", speed.is_pinned}}));
  return 1;
}

// Returns the options with this rank's place and its file system.
template <class Options>
Options on_this_rank(lua_State* L, Options options) {
  options.world = lua::world(L);
  options.files = std::make_shared<io::PosixFs>(options.world);
  return options;
}

// offload.move{optimizer = "nvme", folder = {"/nvme0"}, ...} -> Pass
int move(lua_State* L) {
  lua::push(L, make_move(on_this_rank(L, parse_move_options(lua::check_value(L, 1)))));
  return 1;
}

// offload.places{to = "nvme", folder = "/nvme0"} -> Pass
int places(lua_State* L) {
  lua::push(L, make_places(on_this_rank(L, parse_place_options(lua::check_value(L, 1)))));
  return 1;
}

}  // namespace

}  // namespace zt::offload

ZT_LUA_MODULE(offload) {
  module.function<zt::offload::measure>("measure_disk")
      .function<zt::offload::move>("move")
      .function<zt::offload::places>("places");
}
