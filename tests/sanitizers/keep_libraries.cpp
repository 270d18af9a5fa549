// Part of libzt.so in builds with the address sanitizer: replaces dlclose, so that libraries stay loaded and the sanitizer can
// name the library of a leak. Without this, Open MPI unloads its plug-ins before the sanitizer reports.
extern "C" __attribute__((visibility("default"))) int dlclose(void*) noexcept {
  return 0;
}
