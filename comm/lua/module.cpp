// zt.comm for Lua: comm.mesh{...} and the types Mesh, Axis and Work.
#include "mesh/mesh.h"
#include "module_axis.h"
#include "mpi/runtime.h"
#include "recorder/flight_file.h"
#include "recorder/report.h"
#include "recorder/verdict.h"
#include "zt/base/options.h"
#include "zt/lua/runtime.h"
#include "zt/lua/state.h"
#include "zt/process/log.h"

namespace zt::comm {

namespace {

#ifdef ZT_HAS_NCCL
constexpr const char* kNccl = "compiled in; opened when a mesh asks for it";
#else
constexpr const char* kNccl = "not compiled in (its headers or CUDA were not found)";
#endif

int make_mesh(lua_State* L) {
  lua::push(L, make_mesh(lua::world(L), parse_mesh_options(lua::check_value(L, 1))));
  return 1;
}

// mesh:axis("dp"), and mesh.dp where no method has that name
int mesh_axis(lua_State* L) {
  lua::push(L, lua::check<Mesh>(L, 1)->axis(lua::check_string(L, 2)));
  return 1;
}

// mesh:join{"dp", "ep"}
int mesh_join(lua_State* L) {
  std::vector<std::string> names;
  convert(lua::check_value(L, 2), "mesh:join", names);
  lua::push(L, lua::check<Mesh>(L, 1)->join(names));
  return 1;
}

// mesh:refactor{dp = 2, ep = 2, order = {...}}: axes as for comm.mesh. The options of the mesh stay; a backend given by axis
// stays with axes of that name.
int mesh_refactor(lua_State* L) {
  lua::push(L, lua::check<Mesh>(L, 1)->refactor(parse_mesh_options(lua::check_value(L, 2)).axes));
  return 1;
}

std::string text_of_mesh(const Mesh& mesh) {
  return fmt::format("mesh {} (rank {} of {})", mesh.shape().text(), mesh.rank(), mesh.shape().world_size());
}

// A work of then_ is complete once its function has run, too.
bool work_done(const Work& work) {
  if (!work.done()) return false;
  work.wait();
  return true;
}

// A function of then_, which warns if it goes without having been called.
class Finish {
 public:
  Finish(lua_State* L, int index) : function_(L, index), place_(function_.place()), world_(lua::world(L)) {}
  ~Finish() {
    if (is_called_) return;
    log(LogLevel::warn, world_,
        fmt::format("the function at {} that work:then_ was given was never called, because nothing has waited for the work that "
                    "then_ returned: let the action return it, or call its wait()",
                    place_));
  }
  void call() {
    is_called_ = true;
    lua_State* L = function_.begin();
    const lua::StackScope restored(L, lua_gettop(L) - 1);
    function_.call(0, 0);
  }

 private:
  lua::Callable function_;
  std::string place_;
  World world_;
  bool is_called_ = false;
};

// work:then_(fn) -> a work that is complete when this one is and fn() has run, which the first wait for it calls
int work_then(lua_State* L) {
  lua::check_function(L, 2);
  const auto finish = std::make_shared<Finish>(L, 2);
  lua::push(L, std::make_shared<Work>(then(*lua::check<Work>(L, 1), [finish] { finish->call(); })));
  return 1;
}

// verdict(folder) -> a text that says who waits for whom, and the list of the ranks whose flight records lie in the folder
int read_verdict(lua_State* L) {
  const auto flights = read_flights(lua::check_string(L, 1));
  Value::List ranks;
  for (const Flight& flight : flights) ranks.emplace_back(flight.rank);
  lua::push(L, judge(flights).text());
  lua::push(L, Value(std::move(ranks)));
  return 2;
}

}  // namespace

// Records the end of the script in this rank's black box, where ranks that wait for this one find it.
void watch_script_end(lua_State* L) {
  const World& world = lua::world(L);
  if (world.size > 1 && !world.dry) lua::at_script_end(L, [world] { note_script_end(world); });
}

void open(lua::Module& module) {
  watch_script_end(module.state());
  module.function<make_mesh>("mesh").function<read_verdict>("verdict");
  module.type<Mesh>()
      .method<mesh_axis>("axis")
      .method<mesh_join>("join")
      .method<mesh_refactor>("refactor")
      .method<&Mesh::world>("world")
      .fallback<mesh_axis>()
      .metamethod<text_of_mesh>("__tostring");
  open_axis(module);
  module.type<Work>().method<&Work::wait>("wait").method<work_done>("done").method<work_then>("then_");
  lua::push(module.state(), Value(Value::Table{{"MPI", mpi_version()}, {"NCCL", kNccl}}));
  lua_setfield(module.state(), -2, "_INFO");  // for `ztoolkit info`
}

}  // namespace zt::comm

ZT_LUA_MODULE(comm) {
  zt::comm::open(module);
}
