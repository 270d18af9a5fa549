// The library that missing_library.cpp links to.
int from_the_missing_library() {
  return 1;
}
