# Run by cpack on the files of a .deb before they are packed: /usr/bin/ztoolkit leads to the command in /opt/ztoolkit.
file(MAKE_DIRECTORY ${CPACK_TEMPORARY_DIRECTORY}/usr/bin)
file(CREATE_LINK ../../opt/ztoolkit/bin/ztoolkit ${CPACK_TEMPORARY_DIRECTORY}/usr/bin/ztoolkit SYMBOLIC)
