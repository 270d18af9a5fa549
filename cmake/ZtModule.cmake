# ztoolkit_add_module(name sources... [FOLDERS folders...]): adds the module zt/NAME.so, the shared library that
# `require "zt.NAME"` loads. Of each folder, such as lua or ".", it builds all .cpp files: a new file needs no edit of a list.
#
# The target is zt_NAME. The library exports one symbol, luaopen_zt_NAME, and is never unloaded. Its objects are also the target
# zt_NAME_objects, so that tests can link symbols that the library hides. Link further libraries to zt_NAME_objects.
# In this tree the library is built in lib/zt of the build folder. Outside of this tree it is built in the folder zt of
# CMAKE_LIBRARY_OUTPUT_DIRECTORY or, if that is not set, of the current binary folder. It is installed into lib/zt.
#
# Lua files in the caller's subfolder lua belong to the module: lua/load.lua is `require "zt.NAME.load"`. They are installed into
# share/ztoolkit/lua/zt/NAME. In this tree the build folder links to them (ZtLuaTree.cmake).
include(${CMAKE_CURRENT_LIST_DIR}/ZtNumerics.cmake)
set(ZT_MODULE_EXPORTS ${CMAKE_CURRENT_LIST_DIR}/module_exports.ld.in)

function(ztoolkit_add_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "FOLDERS")
  set(sources ${arg_UNPARSED_ARGUMENTS})
  foreach(folder ${arg_FOLDERS})
    file(GLOB of_folder CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${of_folder})
  endforeach()
  add_library(zt_${name}_objects OBJECT ${sources})
  target_link_libraries(zt_${name}_objects PUBLIC ztoolkit::binding)
  target_include_directories(zt_${name}_objects PUBLIC ${CMAKE_CURRENT_SOURCE_DIR})
  if(TARGET zt_pch)
    target_precompile_headers(zt_${name}_objects REUSE_FROM zt_pch)
  else()
    target_compile_features(zt_${name}_objects PUBLIC cxx_std_20)
    target_compile_options(zt_${name}_objects PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:${ZT_NUMERIC_OPTIONS}>")
    set_target_properties(zt_${name}_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
  endif()

  set(exports ${CMAKE_CURRENT_BINARY_DIR}/zt_${name}.exports)
  set(ZT_MODULE_NAME ${name})
  configure_file(${ZT_MODULE_EXPORTS} ${exports} @ONLY)
  set(folder ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  if(NOT folder)
    set(folder ${CMAKE_CURRENT_BINARY_DIR})
  endif()
  add_library(zt_${name} MODULE)
  target_link_libraries(zt_${name} PRIVATE zt_${name}_objects)
  target_link_options(zt_${name} PRIVATE -Wl,-z,nodelete -Wl,--version-script=${exports} -Wl,--no-undefined)
  set_target_properties(zt_${name} PROPERTIES
    PREFIX "" OUTPUT_NAME ${name} LINK_DEPENDS ${exports} LINKER_LANGUAGE CXX LIBRARY_OUTPUT_DIRECTORY ${folder}/zt
    BUILD_RPATH "$ORIGIN/..;${ZT_RUNTIME_PATHS}" INSTALL_RPATH "$ORIGIN/..")
  install(TARGETS zt_${name} DESTINATION lib/zt)
  set_property(GLOBAL APPEND PROPERTY ZT_MODULES zt_${name})

  file(GLOB_RECURSE lua_files CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/lua/*.lua)
  if(lua_files)
    install(DIRECTORY lua/ DESTINATION share/ztoolkit/lua/zt/${name} FILES_MATCHING PATTERN "*.lua")
    set_property(GLOBAL APPEND PROPERTY ZT_LUA_MODULES ${name})
    set_property(GLOBAL APPEND PROPERTY ZT_LUA_MODULE_FOLDERS ${CMAKE_CURRENT_SOURCE_DIR}/lua)
  endif()
endfunction()
