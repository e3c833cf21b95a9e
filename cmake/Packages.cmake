# What cmake --install puts in place beside the programs, and the Debian packages that cpack makes
# of it: attention-server, attention-client, libattention-client-dev. deploy/make-packages calls it.
#
# The unit names the program and the file with its options where they are, which is known when it
# is installed: --prefix may be another one than before. For /usr, settings are in /etc.
set(attention_install_unit [=[
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr")
  set(settings /etc/default)
else()
  set(settings ${CMAKE_INSTALL_PREFIX}/etc/default)
endif()
file(READ @PROJECT_SOURCE_DIR@/deploy/systemd/attention-server.service unit)
string(REGEX REPLACE "^(#[^\n]*\n)+" "" unit "${unit}")
string(REPLACE /usr/local/bin ${CMAKE_INSTALL_PREFIX}/@CMAKE_INSTALL_BINDIR@ unit "${unit}")
string(REPLACE /etc/default ${settings} unit "${unit}")
file(WRITE @PROJECT_BINARY_DIR@/install/attention-server.service "${unit}")
file(INSTALL @PROJECT_BINARY_DIR@/install/attention-server.service
     DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)
file(INSTALL @PROJECT_SOURCE_DIR@/deploy/debian/attention-server.default
     DESTINATION ${settings} RENAME attention-server)
]=])
string(CONFIGURE "${attention_install_unit}" attention_install_unit @ONLY)
install(CODE "${attention_install_unit}" COMPONENT server)

set(doc ${CMAKE_INSTALL_DATADIR}/doc)
install(DIRECTORY deploy/monitoring deploy/proxy
        DESTINATION ${CMAKE_INSTALL_DATADIR}/attention-server COMPONENT server)
# With their folders, so that links from page to page work.
install(DIRECTORY docs/ DESTINATION ${doc}/attention-server COMPONENT server
        FILES_MATCHING PATTERN "*.md" PATTERN "*.svg")
# The licence is in one file; the programs contain libraries of headers, whose licences go along.
# Images are built without deploy/, and install nothing.
if(EXISTS ${PROJECT_SOURCE_DIR}/deploy/debian/copyright)
  file(READ ${PROJECT_SOURCE_DIR}/LICENSE ATTENTION_LICENCE)
  configure_file(deploy/debian/copyright ${PROJECT_BINARY_DIR}/install/copyright @ONLY)
endif()
foreach(package server client)
  install(FILES ${PROJECT_BINARY_DIR}/install/copyright DESTINATION ${doc}/attention-${package}
          COMPONENT ${package})
  foreach(library libboost-dev libcli11-dev libeigen3-dev nlohmann-json3-dev)
    install(FILES /usr/share/doc/${library}/copyright
            DESTINATION ${doc}/attention-${package}/licenses RENAME ${library}
            COMPONENT ${package} OPTIONAL)
  endforeach()
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/install/copyright DESTINATION ${doc}/libattention-client-dev
        COMPONENT development)

# What deploy/make-debian-docs makes, which the packages need; cmake --install does without it.
set(made ${PROJECT_BINARY_DIR}/debian)
foreach(part server client development)
  set(package attention-${part})
  set(pages ${made}/${package}.1.gz)
  if(part STREQUAL "client")
    list(APPEND pages ${made}/attention-client-attend.1.gz)
  elseif(part STREQUAL "development")
    set(package libattention-client-dev)
    set(pages)
  endif()
  install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${part} OPTIONAL)
  install(FILES ${made}/${package}.changelog.gz DESTINATION ${doc}/${package}
          COMPONENT ${part} RENAME changelog.gz OPTIONAL)
  install(FILES deploy/debian/lintian/${package}
          DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${part})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME attention)
set(CPACK_PACKAGE_CONTACT "attention-server's maintainers <root@localhost>")
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
# Each package has a description of its own.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
set(CPACK_SET_DESTDIR ON)  # /etc/default is outside of the prefix
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL server client development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_SERVER_DESCRIPTION "network service that computes attention
A gRPC server that computes scaled dot-product, additive, Gaussian and
bilinear attention, over an API of its own and over the Open Inference
Protocol, which HTTP has too, with health and metrics.")
set(CPACK_DEBIAN_SERVER_PACKAGE_NAME attention-server)
set(CPACK_DEBIAN_SERVER_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SERVER_PACKAGE_SUGGESTS "attention-client, prometheus")
set(debian ${PROJECT_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_SERVER_PACKAGE_CONTROL_EXTRA
    ${debian}/conffiles ${debian}/postinst ${debian}/postrm ${debian}/prerm)

set(CPACK_DEBIAN_CLIENT_DESCRIPTION "command line of the attention service
Calls attention-server: attention of tensors in safetensors and .npy files,
heat maps in the terminal, health and state of the server.")
set(CPACK_DEBIAN_CLIENT_PACKAGE_NAME attention-client)
set(CPACK_DEBIAN_CLIENT_PACKAGE_SECTION net)

set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION "C++ client library of the attention service
A static library with its headers and its CMake package, attention_client.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libattention-client-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
    "libabsl-dev, libgrpc++-dev, libprotobuf-dev, libssl-dev")
include(CPack)
