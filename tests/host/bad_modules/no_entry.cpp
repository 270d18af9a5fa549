// A library that is not a module: it has no luaopen function.
extern "C" __attribute__((visibility("default"))) int no_entry() {
  return 0;
}
