/* The descriptor set of our .proto files, as protoc wrote it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
    .section .rodata
    .balign 16
    .global vx_descriptors_begin
    .global vx_descriptors_end
vx_descriptors_begin:
    .incbin "descriptors.bin"
vx_descriptors_end:
    .byte 0
    .section .note.GNU-stack,"",@progbits
