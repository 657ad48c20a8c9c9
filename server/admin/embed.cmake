# Writes the files of the page as one C file:
#   cmake -DFROM=server/admin -DOUT=file.c -P embed.cmake
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.20)

# The file as a C array, with a NUL behind it.
function(embed name symbol)
  file(READ ${FROM}/${name} hex HEX)
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  set(arrays "${arrays}const char ${symbol}[] = {\n${hex}0};\n" PARENT_SCOPE)
endfunction()

set(arrays)
set(rows)
embed(page_head.html vx_page_head)
foreach(pair page.css=text/css live.js=text/javascript charts.js=text/javascript chart.js=text/javascript
    dom.js=text/javascript tables.js=text/javascript units.js=text/javascript
    icon.svg=image/svg+xml)
  string(REGEX MATCH "^([^=]+)=(.+)$" pair "${pair}")
  set(name ${CMAKE_MATCH_1})
  set(type ${CMAKE_MATCH_2})
  if(type MATCHES "^text/")
    set(type "${type}; charset=utf-8")
  endif()
  string(MAKE_C_IDENTIFIER "file_${name}" symbol)
  embed(${name} ${symbol})
  string(REPLACE "const char ${symbol}" "static const char ${symbol}" arrays "${arrays}")
  string(APPEND rows "    {\"/${name}\", \"${type}\", ${symbol}, sizeof ${symbol} - 1},\n")
endforeach()
file(WRITE ${OUT}.new "/* Made by server/admin/embed.cmake. */
#include \"server/admin/page_html.h\"

${arrays}
const struct vx_page_file vx_page_files[] = {
${rows}    {0, 0, 0, 0}};
")
file(RENAME ${OUT}.new ${OUT})
