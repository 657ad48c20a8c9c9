# Writes the head of the page for people, with its style, as one C file:
#   cmake -DHEAD=page_head.html -DCSS=page.css -DOUT=file.c -P embed.cmake
# SPDX-License-Identifier: Apache-2.0
cmake_minimum_required(VERSION 3.20)
file(READ ${HEAD} head)
file(READ ${CSS} css)
string(REPLACE "%CSS%" "${css}" head "${head}")
file(WRITE ${OUT}.text "${head}")
file(READ ${OUT}.text hex HEX)
string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT}.new "/* Made by server/admin/embed.cmake. */
#include \"server/admin/page_html.h\"

const char vx_page_head[] = {\n${hex}0};
")
file(RENAME ${OUT}.new ${OUT})
