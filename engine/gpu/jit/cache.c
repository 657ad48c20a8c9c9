/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/jit/cache.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENTRY_SUFFIX ".kernel"
#define FRESH_PREFIX ".new-"
/* An older temporary file was left by a process that died while it wrote. */
#define FRESH_SECONDS_MAX 3600

struct vx_cache {
    int directory; /* -1 = none */
    i64 bytes_max;
    atomic_bool unwritable; /* logged already */
    atomic_uint fresh;      /* numbers the temporary files */
};

struct entry_header {
    char magic[8];
    u32 abi;
    u32 log_bytes;
    u64 image_bytes;
    u8 digest[VX_SHA256_BYTES]; /* of log and image */
};
static const char entry_magic[8] = "vxkernel";
_Static_assert(sizeof(struct entry_header) == 56, "an entry's header has no holes");

static void say_unusable(struct vx_cache *cache, const char *what, int error)
{
    if (atomic_exchange(&cache->unwritable, true)) return;
    VX_LOG(KERNEL_CACHE, VX_LOG_TEXT("what", what),
           VX_LOG_TEXT("error", strerror(error)));
}

/* --- the directory --- */

static vx_status open_directory(struct vx_cache *cache, const char *path,
                                struct vx_why *why)
{
    if (mkdir(path, 0700) && errno != EEXIST) {
        say_unusable(cache, path, errno);
        return VX_OK;
    }
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        say_unusable(cache, path, errno);
        return VX_OK;
    }
    struct stat about;
    /* A directory of root is accepted: root may do anything, and fills the caches
     * of container images. */
    bool ours = !fstat(directory, &about) &&
                (about.st_uid == geteuid() || about.st_uid == 0) &&
                !(about.st_mode & (S_IWGRP | S_IWOTH));
    if (!ours) {
        close(directory);
        VX_FAIL_WHY(why, FAILED_PRECONDITION, "others may write to the kernel cache",
                    "%s: expected a directory that this user owns and only it may write "
                    "(mode 0700), because the binaries in it are executed",
                    path);
    }
    cache->directory = directory;
    return VX_OK;
}

vx_status vx_cache_open(const char *directory, i64 bytes, struct vx_why *why,
                        struct vx_cache **cache)
{
    *cache = NULL;
    struct vx_cache *made = vx_alloc_zero(sizeof *made);
    VX_ENSURE(made, RESOURCE_EXHAUSTED, "no memory for a kernel cache");
    made->directory = -1;
    made->bytes_max = bytes ? bytes : VX_JIT_CACHE_BYTES_DEFAULT;
    vx_status status = directory ? open_directory(made, directory, why) : VX_OK;
    if (status.fault)
        vx_free(made);
    else
        *cache = made;
    return status;
}

void vx_cache_close(struct vx_cache **cache)
{
    struct vx_cache *it = *cache;
    *cache = NULL;
    if (!it) return;
    if (it->directory >= 0) close(it->directory);
    vx_free(it);
}

void vx_cache_name_make(const u8 key[VX_SHA256_BYTES], const char *word,
                        char name[VX_CACHE_NAME_BYTES])
{
    struct vx_sha256 sha;
    u8 digest[VX_SHA256_BYTES];
    char hex[VX_SHA256_HEX_BYTES];
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, key, VX_SHA256_BYTES);
    vx_sha256_add(&sha, word, strlen(word));
    vx_sha256_finish(&sha, digest);
    vx_sha256_hex(digest, hex);
    (void)snprintf(name, VX_CACHE_NAME_BYTES, "%s-%s" ENTRY_SUFFIX, hex, word);
}

/* --- one entry --- */

static void digest_make(const struct vx_binary *binary, u8 digest[VX_SHA256_BYTES])
{
    struct vx_sha256 sha;
    vx_sha256_init(&sha);
    vx_sha256_add(&sha, binary->block, binary->log_bytes + binary->image_bytes);
    vx_sha256_finish(&sha, digest);
}

static bool read_all(int file, void *to, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t got = read(file, (char *)to + done, bytes - done);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        done += (size_t)got;
    }
    return true;
}

static bool write_all(int file, const void *from, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t put = write(file, (const char *)from + done, bytes - done);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        done += (size_t)put;
    }
    return true;
}

/* Reads and checks an entry; NULL if it is valid, else what is wrong with it. */
static const char *read_entry(int file, struct vx_binary *binary)
{
    struct stat about;
    struct entry_header header;
    if (fstat(file, &about) || !S_ISREG(about.st_mode)) return "not a file";
    if (!read_all(file, &header, sizeof header)) return "too short for a header";
    if (memcmp(header.magic, entry_magic, sizeof entry_magic) != 0) return "not an entry";
    if (header.abi != VX_JIT_ABI) return "from another version";
    u64 image = header.image_bytes;
    if (!image || image > VX_JIT_IMAGE_BYTES_MAX || !header.log_bytes ||
        header.log_bytes % 16 || header.log_bytes > VX_JIT_LOG_BYTES_MAX + 16)
        return "lengths out of range";
    if ((u64)about.st_size != sizeof header + header.log_bytes + image)
        return "not as long as its header says";
    if (vx_binary_open(header.log_bytes - 1, (size_t)image, binary).fault)
        return "no memory for it";
    u8 digest[VX_SHA256_BYTES];
    bool whole = read_all(file, binary->block, header.log_bytes + (size_t)image);
    digest_make(binary, digest);
    if (!whole || memcmp(digest, header.digest, sizeof digest) != 0)
        return "checksum is wrong";
    return binary->block[header.log_bytes - 1] ? "its log is not terminated" : NULL;
}

bool vx_cache_get(struct vx_cache *cache, const char *name, struct vx_binary *binary)
{
    *binary = (struct vx_binary){0};
    if (cache->directory < 0) return false;
    int file = openat(cache->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    const char *wrong = read_entry(file, binary);
    /* Marks the entry as used just now, for trim.  Has no effect on a file of root. */
    if (!wrong) (void)futimens(file, NULL);
    close(file);
    if (!wrong) return true;
    VX_LOG(KERNEL_DAMAGED, VX_LOG_TEXT("entry", name), VX_LOG_TEXT("what", wrong));
    (void)unlinkat(cache->directory, name, 0);
    vx_binary_close(binary);
    return false;
}

static bool write_entry(int file, const struct vx_binary *binary)
{
    struct entry_header header = {
        .abi = VX_JIT_ABI,
        .log_bytes = (u32)binary->log_bytes,
        .image_bytes = binary->image_bytes,
    };
    memcpy(header.magic, entry_magic, sizeof header.magic);
    digest_make(binary, header.digest);
    return write_all(file, &header, sizeof header) &&
           write_all(file, binary->block, binary->log_bytes + binary->image_bytes) &&
           !fsync(file);
}

void vx_cache_put(struct vx_cache *cache, const char *name,
                  const struct vx_binary *binary)
{
    if (cache->directory < 0) return;
    /* A random name: process numbers repeat in containers that share a volume. */
    u64 nobodys = 0;
    char fresh[64];
    if (getrandom(&nobodys, sizeof nobodys, 0) != sizeof nobodys)
        nobodys = (u64)vx_clock_ns();
    (void)snprintf(fresh, sizeof fresh, FRESH_PREFIX "%016llx-%u",
                   (unsigned long long)nobodys, atomic_fetch_add(&cache->fresh, 1));
    int file =
        openat(cache->directory, fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0) {
        say_unusable(cache, "a new entry", errno);
        return;
    }
    bool good = write_entry(file, binary);
    int error = errno;
    good = !close(file) && good;
    if (good && !renameat(cache->directory, fresh, cache->directory, name)) return;
    say_unusable(cache, "writing an entry", good ? errno : error);
    (void)unlinkat(cache->directory, fresh, 0);
}

/* --- all entries --- */

struct found {
    char name[VX_CACHE_NAME_BYTES];
    i64 bytes;
    struct timespec used;
};
struct found_list {
    struct found *rows;
    i32 count, room;
};

static bool list_grow(struct found_list *list)
{
    i32 room = list->room ? list->room * 2 : 256;
    struct found *rows = vx_alloc((size_t)room * sizeof *rows);
    if (!rows) return false;
    if (list->count) memcpy(rows, list->rows, (size_t)list->count * sizeof *rows);
    vx_free(list->rows);
    list->rows = rows;
    list->room = room;
    return true;
}

static bool is_entry(const char *name)
{
    size_t length = strlen(name), suffix = strlen(ENTRY_SUFFIX);
    return length > 65 + suffix && length < VX_CACHE_NAME_BYTES && name[64] == '-' &&
           !strcmp(name + length - suffix, ENTRY_SUFFIX);
}

/* Lists every entry, and removes the temporary files that dead writers left. */
static void list_build(struct vx_cache *cache, struct found_list *list)
{
    *list = (struct found_list){0};
    int copy = openat(cache->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = copy < 0 ? NULL : fdopendir(copy);
    if (!directory) {
        if (copy >= 0) close(copy);
        return;
    }
    for (const struct dirent *it = readdir(directory); it; it = readdir(directory)) {
        struct stat about;
        bool fresh = !strncmp(it->d_name, FRESH_PREFIX, strlen(FRESH_PREFIX));
        if (!fresh && !is_entry(it->d_name)) continue;
        if (fstatat(copy, it->d_name, &about, AT_SYMLINK_NOFOLLOW)) continue;
        if (fresh) {
            if (time(NULL) - about.st_mtim.tv_sec > FRESH_SECONDS_MAX)
                (void)unlinkat(copy, it->d_name, 0);
            continue;
        }
        if (list->count == list->room && !list_grow(list)) break;
        struct found *row = &list->rows[list->count++];
        size_t length = strnlen(it->d_name, sizeof row->name - 1);
        memcpy(row->name, it->d_name, length);
        row->name[length] = '\0';
        row->bytes = about.st_size;
        row->used = about.st_mtim;
    }
    closedir(directory);
}

static int by_use(const void *a, const void *b)
{
    const struct found *one = a, *other = b;
    if (one->used.tv_sec != other->used.tv_sec)
        return one->used.tv_sec < other->used.tv_sec ? -1 : 1;
    if (one->used.tv_nsec != other->used.tv_nsec)
        return one->used.tv_nsec < other->used.tv_nsec ? -1 : 1;
    return strcmp(one->name, other->name);
}

void vx_cache_trim(struct vx_cache *cache)
{
    struct found_list list;
    i64 bytes = 0;
    if (cache->directory < 0) return;
    list_build(cache, &list);
    for (i32 i = 0; i < list.count; i++) bytes += list.rows[i].bytes;
    if (bytes > cache->bytes_max) {
        qsort(list.rows, (size_t)list.count, sizeof *list.rows, by_use);
        for (i32 i = 0; i < list.count && bytes > cache->bytes_max; i++)
            if (!unlinkat(cache->directory, list.rows[i].name, 0))
                bytes -= list.rows[i].bytes;
    }
    vx_free(list.rows);
}

static int by_name(const void *a, const void *b)
{
    return strverscmp(b, a); /* the newest first: nvrtc-13.0 before nvrtc-12.9 */
}

i32 vx_cache_words(struct vx_cache *cache,
                   char words[VX_JIT_COMPILERS_MAX][VX_COMPILER_WORD_BYTES])
{
    struct found_list list;
    i32 count = 0;
    if (cache->directory < 0) return 0;
    list_build(cache, &list);
    for (i32 i = 0; i < list.count; i++) {
        char word[VX_COMPILER_WORD_BYTES];
        const char *at = list.rows[i].name + 65;
        size_t length = strlen(at) - strlen(ENTRY_SUFFIX);
        if (length >= sizeof word || count == VX_JIT_COMPILERS_MAX) continue;
        memcpy(word, at, length);
        word[length] = 0;
        i32 known = 0;
        while (known < count && strcmp(words[known], word) != 0) known++;
        if (known == count) memcpy(words[count++], word, sizeof word);
    }
    vx_free(list.rows);
    qsort(words, (size_t)count, sizeof words[0], by_name);
    return count;
}
