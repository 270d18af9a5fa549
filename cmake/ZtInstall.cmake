# The installed tree: bin/ztoolkit, libexec/ztoolkit, lib/libzt*.so, lib/zt/*.so (installed by ztoolkit_add_module), include/zt,
# share/ztoolkit/lua, the experiments, and the CMake package `ztoolkit` for modules outside this tree. The tree is relocatable:
# bin/ztoolkit finds LibTorch when it starts.
include(CMakePackageConfigHelpers)

set_target_properties(zt_io PROPERTIES EXPORT_NAME io)
set_target_properties(zt_lua PROPERTIES EXPORT_NAME binding)
install(TARGETS zt zt_io zt_lua EXPORT ztoolkitTargets DESTINATION lib)
install(DIRECTORY modules/sdk/include/zt modules/io/include/zt lua/binding/include/zt ${CMAKE_BINARY_DIR}/include/zt DESTINATION include)
# The Lua library, and the script and the style of the page that ztoolkit report writes. Modules' own files: ZtModule.cmake.
install(DIRECTORY lua/zt DESTINATION share/ztoolkit/lua FILES_MATCHING PATTERN "*.lua" PATTERN "*.js" PATTERN "*.css")
install(DIRECTORY scripts/exp DESTINATION share/ztoolkit/scripts)
install(FILES LICENSE DESTINATION share/ztoolkit)
# The documents in their own folders, and what they link to: a test follows all links.
file(GLOB documents RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS *.md docs/*.md */README.md ckpt/FORMAT.md lua/*/README.md
     modules/*/*.md)
foreach(document ${documents})
  cmake_path(GET document PARENT_PATH folder)
  install(FILES ${document} DESTINATION share/ztoolkit/${folder})
endforeach()
install(DIRECTORY bench/plans DESTINATION share/ztoolkit/bench)
install(DIRECTORY modules/example modules/gemm DESTINATION share/ztoolkit/modules FILES_MATCHING PATTERN "*.h" PATTERN "*.cpp"
  PATTERN "CMakeLists.txt")
foreach(header zero/residency/residency.h pipe/schedule/schedule.h comm/two_level/two_level_backend.h
        modules/sdk/src/verify/verify.h)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION share/ztoolkit/${folder})
endforeach()
# zt_install_link(link target): a symbolic link below share/ztoolkit to another part of the tree.
function(zt_install_link link target)
  cmake_path(GET link PARENT_PATH folder)
  install(CODE "set(top \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/share/ztoolkit\")
    file(MAKE_DIRECTORY \"\${top}/${folder}\")
    file(CREATE_LINK \"${target}\" \"\${top}/${link}\" SYMBOLIC)")
endfunction()
zt_install_link(modules/sdk/include ../../../../include)
zt_install_link(zero/lua ../lua/zt/zero)
zt_install_link(ckpt/lua ../lua/zt/ckpt)

# LibTorch itself is installed on request: always with this option, once by `cmake --install build/release --component torch`.
option(ZT_BUNDLE_TORCH "Install and package LibTorch's CPU libraries too" OFF)
set(unless_asked EXCLUDE_FROM_ALL)
if(ZT_BUNDLE_TORCH)
  set(unless_asked "")
endif()
configure_file(cmake/install_torch.cmake.in ${CMAKE_BINARY_DIR}/install_torch.cmake @ONLY)
install(SCRIPT ${CMAKE_BINARY_DIR}/install_torch.cmake COMPONENT torch ${unless_asked})

set(package lib/cmake/ztoolkit)
install(EXPORT ztoolkitTargets NAMESPACE ztoolkit:: DESTINATION ${package})
install(FILES cmake/FindLibTorch.cmake cmake/ZtModule.cmake cmake/ZtNumerics.cmake cmake/module_exports.ld.in DESTINATION ${package})
configure_package_config_file(cmake/ztoolkitConfig.cmake.in ${CMAKE_BINARY_DIR}/ztoolkitConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ztoolkitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ztoolkitConfig.cmake ${CMAKE_BINARY_DIR}/ztoolkitConfigVersion.cmake DESTINATION ${package})
