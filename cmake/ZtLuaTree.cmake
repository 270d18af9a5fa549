# Links the documents into the build tree, as share/ztoolkit/docs, and the Lua sources, as share/ztoolkit/lua/zt. So an edited
# file, and a new file in a linked folder, need no build. The entries of lua/zt are linked one by one. The folder lua of a module (ztoolkit_add_module) is linked as zt/NAME.
set(source ${CMAKE_SOURCE_DIR}/lua/zt)
file(GLOB entries RELATIVE ${source} CONFIGURE_DEPENDS ${source}/*.lua ${source}/*/*.lua)
list(TRANSFORM entries REPLACE "/.*" "") # files, and folders with Lua files
list(REMOVE_DUPLICATES entries)
get_property(names GLOBAL PROPERTY ZT_LUA_MODULES)
get_property(folders GLOBAL PROPERTY ZT_LUA_MODULE_FOLDERS)

set(tree ${CMAKE_BINARY_DIR}/share/ztoolkit/lua)
if(IS_SYMLINK ${tree}) # older build trees have one link for all of lua
  file(REMOVE ${tree})
endif()
file(MAKE_DIRECTORY ${tree}/zt)

# Parallel lists: the name of each link, and its target.
set(links ${entries})
list(TRANSFORM entries PREPEND ${source}/ OUTPUT_VARIABLE targets)
list(APPEND targets ${folders})
foreach(name ${names})
  if(name IN_LIST links)
    message(FATAL_ERROR "zt.${name} is both a module with Lua files and lua/zt/${name}: move the files of one to the other")
  endif()
  list(APPEND links ${name})
endforeach()

file(CREATE_LINK ${CMAKE_SOURCE_DIR}/docs ${CMAKE_BINARY_DIR}/share/ztoolkit/docs SYMBOLIC)
file(GLOB found RELATIVE ${tree}/zt ${tree}/zt/*)
foreach(name ${found})
  if(NOT name IN_LIST links)
    file(REMOVE ${tree}/zt/${name})
  endif()
endforeach()
foreach(name target IN ZIP_LISTS links targets)
  file(CREATE_LINK ${target} ${tree}/zt/${name} SYMBOLIC)
endforeach()
