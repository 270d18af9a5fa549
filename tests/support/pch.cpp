// CMake builds the precompiled header as part of a target, and that target needs a source file.
