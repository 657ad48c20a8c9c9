/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/jit_key.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEXT_NAME_BYTES 128

/* --- texts --- */

static const struct vx_text *find(const struct vx_jit_texts *texts, const char *name,
                                  size_t length)
{
    for (i32 i = 0; i < texts->count; i++)
        if (!strncmp(texts->rows[i].name, name, length) && !texts->rows[i].name[length])
            return &texts->rows[i];
    return NULL;
}

static bool is_text(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (!strcmp(dot, ".cu") || !strcmp(dot, ".cuh") || !strcmp(dot, ".h")) &&
           strlen(name) + sizeof "kernels/" <= TEXT_NAME_BYTES;
}

/* Reads a file into one block, name before contents; row->name points at the block. */
static vx_status read_text(int file, const char *name, struct vx_why *why,
                           struct vx_text *row)
{
    struct stat about;
    VX_ENSURE_WHY(!fstat(file, &about) && S_ISREG(about.st_mode) &&
                      about.st_size < VX_JIT_TEXT_BYTES_MAX,
                  why, RESOURCE_EXHAUSTED, "a kernel source cannot be read",
                  "%s: expected a file of less than %d bytes", name,
                  VX_JIT_TEXT_BYTES_MAX);
    size_t bytes = (size_t)about.st_size;
    char *block = vx_alloc_zero(TEXT_NAME_BYTES + bytes + 1);
    VX_ENSURE(block, RESOURCE_EXHAUSTED, "no memory for a kernel source");
    ssize_t got = read(file, block + TEXT_NAME_BYTES, bytes);
    if (got != (ssize_t)bytes) {
        vx_free(block);
        VX_FAIL_WHY(why, NOT_FOUND, "a kernel source cannot be read",
                    "%s: expected %zu bytes, got %zd", name, bytes, got);
    }
    (void)snprintf(block, TEXT_NAME_BYTES, "kernels/%s", name);
    *row = (struct vx_text){block, block + TEXT_NAME_BYTES, bytes};
    return VX_OK;
}

static vx_status read_folder(DIR *folder, struct vx_why *why, struct vx_jit_texts *texts)
{
    for (const struct dirent *it = readdir(folder); it; it = readdir(folder)) {
        if (!is_text(it->d_name)) continue;
        VX_ENSURE(texts->count < VX_JIT_TEXTS_MAX, RESOURCE_EXHAUSTED,
                  "too many kernel sources in the folder");
        int file = openat(dirfd(folder), it->d_name, O_RDONLY | O_CLOEXEC);
        VX_ENSURE_WHY(file >= 0, why, NOT_FOUND, "a kernel source cannot be read",
                      "%s: %s", it->d_name, strerror(errno));
        vx_status status = read_text(file, it->d_name, why, &texts->rows[texts->count]);
        close(file);
        VX_TRY(status);
        texts->owned = ++texts->count;
    }
    return VX_OK;
}

vx_status vx_jit_texts_open(const char *folder, struct vx_why *why,
                            struct vx_jit_texts *texts)
{
    texts->count = texts->owned = 0;
    if (folder) {
        DIR *it = opendir(folder);
        VX_ENSURE_WHY(it, why, NOT_FOUND, "the folder of kernel sources cannot be read",
                      "%s: %s", folder, strerror(errno));
        vx_status status = read_folder(it, why, texts);
        closedir(it);
        if (status.fault) vx_jit_texts_close(texts);
        VX_TRY(status);
        VX_ENSURE_WHY(texts->owned, why, NOT_FOUND,
                      "the folder of kernel sources has none",
                      "%s: expected .cu, .cuh or .h files, found none", folder);
    }
    for (i32 i = 0; i < vx_texts_count; i++) {
        if (find(texts, vx_texts[i].name, strlen(vx_texts[i].name))) continue;
        VX_ASSERT(texts->count < VX_JIT_TEXTS_MAX);
        texts->rows[texts->count++] = vx_texts[i];
    }
    return VX_OK;
}

void vx_jit_texts_close(struct vx_jit_texts *texts)
{
    for (i32 i = 0; i < texts->owned; i++)
        vx_free((void *)(uintptr_t)texts->rows[i].name);
    texts->count = texts->owned = 0;
}

/* --- what a text includes --- */

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t') at++;
    return at;
}

/* The name in an #include line, in quotes or brackets; NULL = the line is no #include. */
static const char *include_name(const char *line, size_t *length)
{
    line = skip_blanks(line);
    if (*line != '#') return NULL;
    line = skip_blanks(line + 1);
    if (strncmp(line, "include", 7) != 0) return NULL;
    line = skip_blanks(line + 7);
    if (*line != '"' && *line != '<') return NULL;
    *length = strcspn(line + 1, "\">\n");
    return line + 1;
}

static bool has(const struct vx_jit_closure *closure, const struct vx_text *text)
{
    for (i32 i = 0; i < closure->count; i++)
        if (closure->texts[i] == text) return true;
    return false;
}

/* Adds a source and all that it includes.  A name that is not ours is left to the
 * compiler.  Lines that the preprocessor would skip count too, so that the key may change
 * more often than needed, but never too rarely. */
static void closure_add(const struct vx_jit_texts *texts, const struct vx_text *text,
                        struct vx_jit_closure *closure)
{
    closure->texts[closure->count++] = text;
    for (const char *line = text->data; line; line = strchr(line, '\n')) {
        size_t length;
        if (*line == '\n') line++;
        const char *name = include_name(line, &length);
        const struct vx_text *found = name ? find(texts, name, length) : NULL;
        if (found && !has(closure, found)) closure_add(texts, found, closure);
    }
}

vx_status vx_jit_closure_build(const struct vx_jit_texts *texts, const char *source,
                               struct vx_why *why, struct vx_jit_closure *closure)
{
    char name[TEXT_NAME_BYTES];
    (void)snprintf(name, sizeof name, "kernels/%s", source);
    const struct vx_text *text = find(texts, name, strlen(name));
    VX_ENSURE_WHY(text, why, NOT_FOUND, "no such kernel source",
                  "%s: not one of the %d kernel sources", name, texts->count);
    closure->count = 0;
    closure_add(texts, text, closure);
    return VX_OK;
}

/* --- names --- */

static void add_text(struct vx_sha256 *sha, const char *text)
{
    /* With its NUL, which separates the fields. */
    vx_sha256_add(sha, text, strlen(text) + 1);
}

struct code {
    struct vx_sha256 *sha;
    char bytes[256];
    size_t used;
};

static void code_flush(struct code *code)
{
    vx_sha256_add(code->sha, code->bytes, code->used);
    code->used = 0;
}

static void code_put(struct code *code, char byte)
{
    if (code->used == sizeof code->bytes) code_flush(code);
    code->bytes[code->used++] = byte;
}

/* Past blanks and comments; what is left of them is one blank, or a line's end. */
static const char *code_skip(const char *at, char *gap)
{
    for (;; at++) {
        if (at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at + 2, "*/");
            at = end ? end + 1 : at + strlen(at) - 1;
            if (!*gap) *gap = ' ';
        } else if (at[0] == '/' && at[1] == '/') {
            at += strcspn(at, "\n") - 1;
        } else if (*at == '\n') {
            *gap = '\n';
        } else if (*at == ' ' || *at == '\t') {
            if (!*gap) *gap = ' ';
        } else {
            return at;
        }
    }
}

/* What the compiler sees of a text: a comment that changes voids neither the binaries in a
 * cache nor what was measured with them. */
static void add_code(struct vx_sha256 *sha, const char *text)
{
    struct code code = {.sha = sha};
    char quote = 0;
    bool begun = false;
    for (const char *at = text;; at++) {
        char gap = 0;
        if (!quote) at = code_skip(at, &gap);
        if (gap && begun && *at) code_put(&code, gap);
        begun = true;
        code_put(&code, *at); /* its NUL too, which separates the texts */
        if (!*at) break;
        if (quote && *at == '\\' && at[1])
            code_put(&code, *++at);
        else if (quote && *at == quote)
            quote = 0;
        else if (!quote && (*at == '"' || *at == '\''))
            quote = *at;
    }
    code_flush(&code);
}

void vx_jit_closure_hash(const struct vx_jit_closure *closure, u8 digest[VX_SHA256_BYTES])
{
    struct vx_sha256 sha;
    vx_sha256_init(&sha);
    for (i32 i = 0; i < closure->count; i++) {
        add_text(&sha, closure->texts[i]->name);
        add_code(&sha, closure->texts[i]->data);
    }
    vx_sha256_finish(&sha, digest);
}

void vx_jit_key_make(const struct vx_jit_unit *unit, const u8 digest[VX_SHA256_BYTES],
                     u8 key[VX_SHA256_BYTES])
{
    const struct vx_kernel_spec *spec = unit->wanted.spec;
    i32 order[VX_TILE_VALUES_MAX] = {0};
    VX_ASSERT(spec->macros_count <= VX_TILE_VALUES_MAX);
    for (i32 i = 0; i < spec->macros_count; i++) { /* sorted by name, a few at most */
        i32 at = i;
        for (; at && strcmp(spec->macros[order[at - 1]], spec->macros[i]) > 0; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    struct vx_sha256 sha;
    char text[TEXT_NAME_BYTES];
    vx_sha256_init(&sha);
    (void)snprintf(text, sizeof text, "abi %d type %d", VX_JIT_ABI,
                   (int)unit->wanted.type);
    add_text(&sha, text);
    add_text(&sha, unit->arch);
    for (i32 i = 0; i < spec->macros_count; i++) {
        (void)snprintf(text, sizeof text, "%s=%d", spec->macros[order[i]],
                       unit->wanted.tile->values[order[i]]);
        add_text(&sha, text);
    }
    vx_sha256_add(&sha, digest, VX_SHA256_BYTES);
    vx_sha256_finish(&sha, key);
}
