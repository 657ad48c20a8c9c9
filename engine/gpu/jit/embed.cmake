# Writes the sources in kernels/ as one C file:
#   cmake -DROOT=source-root -DOUT=file.c -DFILES=name;name;... -P embed.cmake
# The bytes are written as numbers, because a C11 string literal may be limited to 4095
# characters.
set(arrays)
set(rows)
set(index 0)
foreach(path IN LISTS FILES)
  file(READ ${ROOT}/${path} hex HEX)
  string(LENGTH "${hex}" digits)
  math(EXPR bytes "${digits} / 2")
  string(REGEX REPLACE "(................................)" "\\1\n" hex "${hex}")
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
  string(REGEX REPLACE "^kernels/rtc/" "" name "${path}")
  string(APPEND arrays "static const unsigned char text_${index}[] = {\n${hex}0};\n")
  string(APPEND rows "    {\"${name}\", (const char *)text_${index}, ${bytes}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(WRITE ${OUT}.new "/* Made by engine/gpu/jit/embed.cmake. */
#include \"engine/gpu/jit/texts.h\"

${arrays}
const struct vx_text vx_texts[] = {
${rows}};
const i32 vx_texts_count = ${index};
")
file(RENAME ${OUT}.new ${OUT})
