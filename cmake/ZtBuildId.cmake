# Writes zt/build_id.h. The build id is a hash of the public headers, the compiler, the processor type, LibTorch's version and the
# sanitizer. It does not depend on the commit. Opening a module with another build id is an error.
set(ZT_ABI 1)
function(zt_write_build_id)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS
    ${CMAKE_SOURCE_DIR}/modules/sdk/include/zt/*.h
    ${CMAKE_SOURCE_DIR}/modules/io/include/zt/*.h
    ${CMAKE_SOURCE_DIR}/lua/binding/include/zt/lua/*.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${headers})
  set(content "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_SYSTEM_PROCESSOR} ${LibTorch_VERSION} ${ZT_SANITIZE}")
  foreach(header ${headers})
    file(SHA256 ${header} hash)
    string(APPEND content ${hash})
  endforeach()
  string(SHA256 build_id "${content}")
  string(SUBSTRING ${build_id} 0 16 build_id)
  set(ZT_BUILD_ID "${build_id}" PARENT_SCOPE)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/build_id.h.in ${CMAKE_BINARY_DIR}/include/zt/build_id.h @ONLY)
endfunction()
