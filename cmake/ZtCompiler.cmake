# Compiler flags for all of our code, and tools that make building fast.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
# NDEBUG as in LibTorch's own build, so that inline code of its headers agrees with its libraries.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g1 -fno-omit-frame-pointer -DNDEBUG")

# Executables are position-independent, too, so that they share one precompiled header with the libraries.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC>)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra> $<$<COMPILE_LANGUAGE:CXX>:-Werror>)
include(ZtNumerics)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${ZT_NUMERIC_OPTIONS}>")
# g++ 12 wrongly warns of uninitialized members of std::variant and <regex> (gcc bugs 105593 and 105562) if it inlines much, as in
# unity builds and with sanitizers.
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-maybe-uninitialized>)
# Options for files whose loops must be vectorized, also in debug builds. With sanitizers g++ 12 crashes when it vectorizes.
set(ZT_VECTOR_OPTIONS -O3)
if(ZT_SANITIZE)
  set(ZT_VECTOR_OPTIONS -O1)
  add_compile_options(-fsanitize=${ZT_SANITIZE} -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${ZT_SANITIZE})
  if(ZT_SANITIZE MATCHES "undefined")
    # LibTorch is built without RTTI for some of its types, so the vptr check reports casts in its headers.
    add_compile_options(-fno-sanitize=vptr)
  endif()
endif()

# RUNPATH instead of RPATH, so that LD_LIBRARY_PATH can select another LibTorch.
add_link_options(-Wl,--enable-new-dtags)
find_program(ZT_MOLD mold)
find_program(ZT_LLD ld.lld)
if(ZT_MOLD)
  add_link_options(-fuse-ld=mold)
elseif(ZT_LLD)
  add_link_options(-fuse-ld=lld)
endif()

find_program(ZT_CCACHE ccache)
if(ZT_CCACHE)
  # With precompiled headers, ccache needs these settings, and the compiler needs -fpch-preprocess.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${ZT_CCACHE})
  add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess>)
endif()

# The build tree has the layout of an installed tree: bin/ztoolkit (installed as libexec/ztoolkit), lib/libzt*.so, lib/zt/*.so.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
