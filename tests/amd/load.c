/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/load.h"

#include "tests/amd/fibers.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define EM_AMDGPU_ 224 /* older <elf.h> lack it */

static enum amd_image refuse(enum amd_image kind, char why[AMD_WHY_BYTES],
                             const char *text, const char *more)
{
    (void)snprintf(why, AMD_WHY_BYTES, "%s%.200s", text, more ? more : "");
    return kind;
}

static u64 most(u64 a, u64 b)
{
    return a > b ? a : b;
}

/* The end of the section table and of every section that has bytes in the file. */
static u64 image_bytes(const Elf64_Ehdr *head)
{
    u64 end = head->e_shoff + (u64)head->e_shnum * head->e_shentsize;
    if (head->e_shentsize != sizeof(Elf64_Shdr) || end > AMD_IMAGE_BYTES_MAX) return 0;
    const u8 *table = (const u8 *)head + head->e_shoff;
    for (u32 i = 0; i < head->e_shnum; i++) {
        Elf64_Shdr section;
        memcpy(&section, table + i * sizeof section, sizeof section);
        if (section.sh_type == SHT_NOBITS || section.sh_type == SHT_NULL) continue;
        end = most(end, section.sh_offset + section.sh_size);
    }
    return end > AMD_IMAGE_BYTES_MAX ? 0 : end;
}

static bool write_all(int file, const u8 *bytes, u64 count)
{
    while (count) {
        ssize_t wrote = write(file, bytes, count);
        if (wrote <= 0) return false;
        bytes += wrote;
        count -= (u64)wrote;
    }
    return true;
}

/* A file without a name, because dlopen takes no bytes.  The loader knows a library again
 * by its path, and descriptors are used again: so each path is another one, with the bits
 * of a number as "/" and "./", which mean nothing in a path. */
static void *open_bytes(const void *image, u64 bytes)
{
    static atomic_uint opened;
    char path[128] = "/proc/self/fd/";
    int file = memfd_create("amd-kernel", MFD_CLOEXEC);
    if (file < 0) return NULL;
    size_t end = strlen(path);
    for (u32 number = atomic_fetch_add(&opened, 1); number; number /= 2) {
        if (number & 1) path[end++] = '.';
        path[end++] = '/';
    }
    (void)snprintf(path + end, sizeof path - end, "%d", file);
    void *library =
        write_all(file, image, bytes) ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    (void)close(file);
    return library;
}

static bool is_object(const struct amd_object *object)
{
    return object && !memcmp(object->magic, AMD_OBJECT_MAGIC, sizeof AMD_OBJECT_MAGIC) &&
           object->version == AMD_OBJECT_VERSION;
}

enum amd_image amd_load(const void *image, const char *arch, struct amd_loaded *loaded,
                        char why[AMD_WHY_BYTES])
{
    Elf64_Ehdr head;
    memset(loaded, 0, sizeof *loaded);
    memcpy(&head, image, sizeof head.e_ident);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 ||
        head.e_ident[EI_CLASS] != ELFCLASS64)
        return refuse(AMD_IMAGE_BAD, why, "the image is no 64-bit ELF file", NULL);
    memcpy(&head, image, sizeof head);
    if (head.e_machine == EM_AMDGPU_)
        return refuse(AMD_IMAGE_OTHER, why, "the image is for a real GPU", NULL);
    u64 bytes = head.e_machine == EM_X86_64 ? image_bytes(image) : 0;
    if (!bytes) return refuse(AMD_IMAGE_BAD, why, "the image is no kernel", NULL);
    loaded->library = open_bytes(image, bytes);
    if (!loaded->library) return refuse(AMD_IMAGE_BAD, why, "the image: ", dlerror());
    loaded->object = dlsym(loaded->library, AMD_OBJECT_SYMBOL);
    if (!is_object(loaded->object)) {
        amd_unload(loaded);
        return refuse(AMD_IMAGE_BAD, why, "the image has no amd_object of this version",
                      NULL);
    }
    if (strcmp(loaded->object->arch, arch) != 0) {
        (void)snprintf(why, AMD_WHY_BYTES, "the image is for %s, the device is %s",
                       loaded->object->arch, arch);
        amd_unload(loaded);
        return AMD_IMAGE_OTHER;
    }
    *loaded->object->hooks = &amd_fiber_hooks;
    return AMD_IMAGE_OURS;
}

void amd_unload(struct amd_loaded *loaded)
{
    if (loaded->library) (void)dlclose(loaded->library);
    memset(loaded, 0, sizeof *loaded);
}

const struct amd_kernel *amd_find(const struct amd_loaded *loaded, const char *name)
{
    for (u64 i = 0; i < loaded->object->kernels_count; i++)
        if (!strcmp(loaded->object->kernels[i].name, name))
            return &loaded->object->kernels[i];
    return NULL;
}
