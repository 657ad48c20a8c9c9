/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/amd_note.h"

#include <elf.h>
#include <string.h>

#define MACHINE_AMDGPU 224 /* EM_AMDGPU, newer than some systems' elf.h */
#define NOTE_METADATA  32  /* NT_AMDGPU_METADATA */

/* --- MessagePack: a cursor that stops at its first bad byte --- */

struct cursor {
    const u8 *at, *end;
    bool bad;
};
struct text {
    const char *at;
    size_t bytes;
};

static u64 take_bytes(struct cursor *cursor, size_t bytes)
{
    u64 value = 0;
    if ((size_t)(cursor->end - cursor->at) < bytes) cursor->bad = true;
    for (size_t i = 0; i < bytes && !cursor->bad; i++) value = value << 8 | *cursor->at++;
    return value;
}

static void pass(struct cursor *cursor, u64 bytes)
{
    if ((u64)(cursor->end - cursor->at) < bytes)
        cursor->bad = true;
    else
        cursor->at += bytes;
}

enum kind { NUMBER, TEXT, LIST, MAP, OTHER };
struct head {
    enum kind kind;
    u64 value; /* the number; or bytes or members that follow */
};

/* The first byte of a value and its length; the table is in its specification. */
static struct head take_head(struct cursor *cursor)
{
    const u8 byte = (u8)take_bytes(cursor, 1);
    if (cursor->bad) return (struct head){OTHER, 0};
    if (byte < 0x80) return (struct head){NUMBER, byte};
    if (byte < 0x90) return (struct head){MAP, byte & 0x0f};
    if (byte < 0xa0) return (struct head){LIST, byte & 0x0f};
    if (byte < 0xc0) return (struct head){TEXT, byte & 0x1f};
    if (byte >= 0xe0) return (struct head){NUMBER, (u64)(i64)(i8)byte};
    switch (byte) {
    case 0xc0: /* nil, false, true */
    case 0xc2:
    case 0xc3: return (struct head){OTHER, 0};
    case 0xc4: /* bytes */
    case 0xd9: return (struct head){TEXT, take_bytes(cursor, 1)};
    case 0xc5:
    case 0xda: return (struct head){TEXT, take_bytes(cursor, 2)};
    case 0xc6:
    case 0xdb: return (struct head){TEXT, take_bytes(cursor, 4)};
    case 0xca: return (struct head){OTHER, (take_bytes(cursor, 4), 0)};
    case 0xcb: return (struct head){OTHER, (take_bytes(cursor, 8), 0)};
    case 0xcc: return (struct head){NUMBER, take_bytes(cursor, 1)};
    case 0xcd: return (struct head){NUMBER, take_bytes(cursor, 2)};
    case 0xce: return (struct head){NUMBER, take_bytes(cursor, 4)};
    case 0xcf: return (struct head){NUMBER, take_bytes(cursor, 8)};
    case 0xd0: return (struct head){NUMBER, (u64)(i64)(i8)take_bytes(cursor, 1)};
    case 0xd1: return (struct head){NUMBER, (u64)(i64)(i16)take_bytes(cursor, 2)};
    case 0xd2: return (struct head){NUMBER, (u64)(i64)(i32)take_bytes(cursor, 4)};
    case 0xd3: return (struct head){NUMBER, take_bytes(cursor, 8)};
    case 0xdc: return (struct head){LIST, take_bytes(cursor, 2)};
    case 0xdd: return (struct head){LIST, take_bytes(cursor, 4)};
    case 0xde: return (struct head){MAP, take_bytes(cursor, 2)};
    case 0xdf: return (struct head){MAP, take_bytes(cursor, 4)};
    default: cursor->bad = true; return (struct head){OTHER, 0}; /* extensions */
    }
}

static void skip(struct cursor *cursor, i32 depth)
{
    const struct head head = take_head(cursor);
    if (depth == VX_AMD_NOTE_DEPTH) cursor->bad = true;
    if (head.kind == TEXT) pass(cursor, head.value);
    const u64 members = head.kind == MAP    ? head.value * 2
                        : head.kind == LIST ? head.value
                                            : 0;
    for (u64 i = 0; i < members && !cursor->bad; i++) skip(cursor, depth + 1);
}

static struct text take_text(struct cursor *cursor)
{
    const struct head head = take_head(cursor);
    const struct text text = {(const char *)cursor->at, (size_t)head.value};
    if (head.kind != TEXT) cursor->bad = true;
    if (!cursor->bad) pass(cursor, head.value);
    return cursor->bad ? (struct text){"", 0} : text;
}

static bool is(struct text text, const char *word)
{
    return text.bytes == strlen(word) && !memcmp(text.at, word, text.bytes);
}

/* --- the map --- */

static const struct {
    const char *key;
    size_t offset;
} fields[] = {
    {".vgpr_count", offsetof(struct vx_amd_kernel, vgprs)},
    {".sgpr_count", offsetof(struct vx_amd_kernel, sgprs)},
    {".vgpr_spill_count", offsetof(struct vx_amd_kernel, vgpr_spills)},
    {".sgpr_spill_count", offsetof(struct vx_amd_kernel, sgpr_spills)},
    {".group_segment_fixed_size", offsetof(struct vx_amd_kernel, lds_bytes)},
    {".private_segment_fixed_size", offsetof(struct vx_amd_kernel, scratch_bytes)},
    {".kernarg_segment_size", offsetof(struct vx_amd_kernel, arguments_bytes)},
    {".max_flat_workgroup_size", offsetof(struct vx_amd_kernel, threads_max)},
    {".wavefront_size", offsetof(struct vx_amd_kernel, wave)},
};

/* True when the map at the cursor is the kernel of this name, with all fields. */
static bool read_kernel(struct cursor *cursor, const char *name,
                        struct vx_amd_kernel *kernel)
{
    const struct head map = take_head(cursor);
    u32 found = 0;
    bool named = false;
    *kernel = (struct vx_amd_kernel){0};
    if (map.kind != MAP) cursor->bad = true;
    for (u64 i = 0; i < map.value && !cursor->bad; i++) {
        const struct text key = take_text(cursor);
        size_t field = 0;
        while (field < VX_COUNT(fields) && !is(key, fields[field].key)) field++;
        if (is(key, ".name")) {
            named = is(take_text(cursor), name);
        } else if (field < VX_COUNT(fields)) {
            const struct head value = take_head(cursor);
            if (value.kind != NUMBER) cursor->bad = true;
            memcpy((char *)kernel + fields[field].offset, &value.value,
                   sizeof value.value);
            found |= 1u << field;
        } else {
            skip(cursor, 0);
        }
    }
    return !cursor->bad && named && found == (1u << VX_COUNT(fields)) - 1;
}

static bool read_map(struct cursor cursor, const char *name, struct vx_amd_kernel *kernel)
{
    const struct head map = take_head(&cursor);
    for (u64 i = 0; map.kind == MAP && i < map.value && !cursor.bad; i++) {
        if (!is(take_text(&cursor), "amdhsa.kernels")) {
            skip(&cursor, 0);
            continue;
        }
        const struct head list = take_head(&cursor);
        for (u64 k = 0; list.kind == LIST && k < list.value && !cursor.bad; k++)
            if (read_kernel(&cursor, name, kernel)) return true;
        return false;
    }
    return false;
}

/* --- the file --- */

static bool read_notes(const u8 *at, size_t bytes, const char *name,
                       struct vx_amd_kernel *kernel)
{
    while (bytes >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr note;
        memcpy(&note, at, sizeof note);
        at += sizeof note;
        bytes -= sizeof note;
        const size_t head = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        const size_t body = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (head > bytes || note.n_descsz > bytes - head) return false;
        if (note.n_type == NOTE_METADATA && note.n_namesz == sizeof "AMDGPU" &&
            !memcmp(at, "AMDGPU", sizeof "AMDGPU"))
            return read_map((struct cursor){at + head, at + head + note.n_descsz, false},
                            name, kernel);
        if (body > bytes - head) return false;
        at += head + body;
        bytes -= head + body;
    }
    return false;
}

bool vx_amd_image_check(const void *image, size_t bytes)
{
    Elf64_Ehdr elf;
    if (bytes < sizeof elf) return false;
    memcpy(&elf, image, sizeof elf);
    return !memcmp(elf.e_ident, ELFMAG, SELFMAG) && elf.e_ident[EI_CLASS] == ELFCLASS64 &&
           elf.e_machine == MACHINE_AMDGPU;
}

bool vx_amd_kernel_read(const void *image, size_t bytes, const char *name,
                        struct vx_amd_kernel *kernel)
{
    Elf64_Ehdr elf;
    if (!vx_amd_image_check(image, bytes)) return false;
    memcpy(&elf, image, sizeof elf);
    for (size_t i = 0; i < elf.e_phnum; i++) {
        Elf64_Phdr part;
        const size_t offset = i * sizeof part;
        if (elf.e_phoff > bytes || offset > bytes - elf.e_phoff ||
            sizeof part > bytes - elf.e_phoff - offset)
            return false;
        memcpy(&part, (const u8 *)image + elf.e_phoff + offset, sizeof part);
        if (part.p_type != PT_NOTE || part.p_offset > bytes ||
            part.p_filesz > bytes - part.p_offset)
            continue;
        if (read_notes((const u8 *)image + part.p_offset, part.p_filesz, name, kernel))
            return true;
    }
    return false;
}
