// A library that is no module: it does not have the function that opens one.
extern "C" __attribute__((visibility("default"))) int no_entry() {
  return 0;
}
