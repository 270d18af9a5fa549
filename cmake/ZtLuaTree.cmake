# The Lua files of the build tree, share/ztoolkit/lua/zt as in an installed tree, as links to the sources: an edited file, and a
# new file in a folder that is linked, need no build. The entries of lua/zt are linked one by one; a module that has Lua files of
# its own (ztoolkit_add_module) appears among them as zt/NAME, a link to its folder lua.
set(source ${CMAKE_SOURCE_DIR}/lua/zt)
file(GLOB entries RELATIVE ${source} CONFIGURE_DEPENDS ${source}/*.lua ${source}/*/*.lua)
list(TRANSFORM entries REPLACE "/.*" "") # files, and folders with Lua files
list(REMOVE_DUPLICATES entries)
get_property(names GLOBAL PROPERTY ZT_LUA_MODULES)
get_property(folders GLOBAL PROPERTY ZT_LUA_MODULE_FOLDERS)

set(tree ${CMAKE_BINARY_DIR}/share/ztoolkit/lua)
if(IS_SYMLINK ${tree}) # build trees made before had one link for all of lua
  file(REMOVE ${tree})
endif()
file(MAKE_DIRECTORY ${tree}/zt)

# Parallel lists: the name of each link, and where it leads.
set(links ${entries})
list(TRANSFORM entries PREPEND ${source}/ OUTPUT_VARIABLE targets)
list(APPEND targets ${folders})
foreach(name ${names})
  if(name IN_LIST links)
    message(FATAL_ERROR "zt.${name} is both a module with Lua files and lua/zt/${name}: move the files of one to the other")
  endif()
  list(APPEND links ${name})
endforeach()

file(GLOB found RELATIVE ${tree}/zt ${tree}/zt/*)
foreach(name ${found})
  if(NOT name IN_LIST links)
    file(REMOVE ${tree}/zt/${name})
  endif()
endforeach()
foreach(name target IN ZIP_LISTS links targets)
  file(CREATE_LINK ${target} ${tree}/zt/${name} SYMBOLIC)
endforeach()
