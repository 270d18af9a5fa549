# Read by cpack before each generator runs. A .deb puts the tree of the .tar.gz, as it is, into /opt/ztoolkit, where neither
# its torch/ nor its lib/zt/ meets files of other packages, and a link to the command into /usr/bin.
if(CPACK_GENERATOR STREQUAL "DEB")
  find_program(shlibdeps dpkg-shlibdeps)
  if(NOT shlibdeps)
    message(FATAL_ERROR "dpkg-shlibdeps, which finds what a .deb depends on, is missing: install dpkg-dev, or take cpack -G TGZ")
  endif()
  set(CPACK_PACKAGING_INSTALL_PREFIX /opt/ztoolkit)
  set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/link_command.cmake)
endif()
