/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/driver/library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* How much a cause tells: that a name is not on this machine tells least. */
enum telling { TELLS_NOTHING, TELLS_ABSENT, TELLS_BROKEN };

static const char *machine_name(unsigned machine)
{
    switch (machine) {
    case EM_386: return "i386";
    case EM_X86_64: return "x86-64";
    case EM_AARCH64: return "AArch64";
    case EM_PPC64: return "PowerPC";
    case EM_RISCV: return "RISC-V";
    default: return "another machine";
    }
}

/* The machine in the header of an ELF file, whatever its class; -1 = no ELF file, -2 = it
 * cannot be read. */
static int machine_of(const char *path)
{
    u8 head[offsetof(Elf64_Ehdr, e_version)] = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -2;
    ssize_t got = read(file, head, sizeof head);
    close(file);
    if (got != (ssize_t)sizeof head || memcmp(head, ELFMAG, SELFMAG) != 0) return -1;
    u16 machine;
    memcpy(&machine, head + offsetof(Elf64_Ehdr, e_machine), sizeof machine);
    return machine;
}

/* Why a path cannot be opened; `said` is the loader's own sentence, and its "no such
 * file" may mean a file of another machine. */
static enum telling cause_of_path(const char *path, const char *said, char *cause,
                                  size_t bytes)
{
    const int machine = machine_of(path), ours = machine_of("/proc/self/exe");
    if (machine >= 0 && ours >= 0 && machine != ours)
        (void)snprintf(cause, bytes, "%s is a library for %s (%d), expected %s (%d)",
                       path, machine_name((unsigned)machine), machine,
                       machine_name((unsigned)ours), ours);
    else if (machine == -1)
        (void)snprintf(cause, bytes, "%s is no ELF library", path);
    else
        (void)snprintf(cause, bytes, "%s", said);
    return machine == -2 ? TELLS_ABSENT : TELLS_BROKEN;
}

static enum telling cause_of(const char *name, const char *said, char *cause,
                             size_t bytes)
{
    if (strchr(name, '/')) return cause_of_path(name, said, cause, bytes);
    (void)snprintf(cause, bytes, "%s", said);
    /* "NAME: cannot open ...": the loader names another file when one is missing that
     * this one needs. */
    size_t length = strlen(name);
    bool own = !strncmp(said, name, length) && said[length] == ':';
    return own && strstr(said, "No such file") ? TELLS_ABSENT : TELLS_BROKEN;
}

static void list_names(const char *const *names, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (i32 i = 0; names[i] && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", names[i]);
}

vx_status vx_library_open(const struct vx_library_wanted *wanted, struct vx_why *why,
                          void **library)
{
    const char *const one[] = {wanted->named, NULL};
    const char *const *names = wanted->named ? one : wanted->names;
    char cause[VX_WHY_BYTES] = "", list[VX_WHY_BYTES];
    enum telling best = TELLS_NOTHING;
    *library = NULL;
    for (const char *const *name = names; *name; name++) {
        char next[VX_WHY_BYTES] = "";
        *library = dlopen(*name, RTLD_NOW | RTLD_LOCAL);
        if (*library) return VX_OK;
        const char *said = dlerror();
        enum telling telling = cause_of(*name, said ? said : "", next, sizeof next);
        if (telling <= best) continue;
        best = telling;
        memcpy(cause, next, sizeof cause);
    }
    if (best != TELLS_ABSENT || wanted->named)
        VX_FAIL_WHY(why, NOT_FOUND, "no GPU driver on this machine", "no %s: %.200s",
                    wanted->word, cause);
    list_names(names, list, sizeof list);
    VX_FAIL_WHY(why, NOT_FOUND, "no GPU driver on this machine",
                "no %s: none of %.200s is on this machine", wanted->word, list);
}
