# llhttp: the HTTP/1 parser of Node.js.  Debian ships its generated C sources (package node-llhttp)
# and no library, so the library is made here.  Not our code: its warnings are off, and its header
# is a system header to whoever links it.
find_path(LLHTTP_INCLUDE llhttp.h PATHS /usr/share/include/llhttp REQUIRED)
find_path(LLHTTP_SOURCES llhttp.c PATHS /usr/share/llhttp REQUIRED)
add_library(llhttp STATIC
  ${LLHTTP_SOURCES}/api.c
  ${LLHTTP_SOURCES}/http.c
  ${LLHTTP_SOURCES}/llhttp.c
)
target_include_directories(llhttp SYSTEM PUBLIC ${LLHTTP_INCLUDE})
# Strict: the grammar of the RFC and nothing beside it.
target_compile_definitions(llhttp PUBLIC LLHTTP_STRICT_MODE=1)
target_compile_options(llhttp PRIVATE -w)
