# `cpack --preset release` packs the installed tree (ZtInstall.cmake): a .tar.gz that works wherever it is unpacked, and a .deb.
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGE_NAME ztoolkit)
set(CPACK_PACKAGE_CONTACT "The ztoolkit maintainers <maintainers@ztoolkit.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed training by programs that a Lua script builds")
set(CPACK_PACKAGE_FILE_NAME ztoolkit-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
if(ZT_BUNDLE_TORCH)
  string(APPEND CPACK_PACKAGE_FILE_NAME -torch)
endif()
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/pack_deb.cmake)

set(CPACK_DEBIAN_FILE_NAME ${CPACK_PACKAGE_FILE_NAME}.deb)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# dpkg-shlibdeps finds the packages of the libraries that ours link to. LibTorch is in no package. openmpi-bin has mpirun, which
# runs with several ranks need.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${ZT_RUNTIME_PATHS})
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openmpi-bin, libblis4-serial")
include(CPack)
