/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/confine/confine.h"

#include "engine/base/process/check.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

/* The kernel writes no core file below a page.  Where cores go to a program, as to
 * systemd-coredump, it ignores every limit but this one: then it does not start it. */
#define NO_CORE_BYTES 1
/* Bits of coredump_filter: which kinds of mappings a core has. */
#define NO_MAPPINGS "0x10" /* headers of ELF files alone */

void vx_confine_privileges(void)
{
    VX_ASSERT(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
}

/* For cores that a debugger writes, which asks for no limit; children inherit it. */
static void cores_without_memory(void)
{
    int file = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);
    if (file < 0) return; /* no /proc: a debugger has nothing to read either */
    if (write(file, NO_MAPPINGS, sizeof NO_MAPPINGS - 1) < 0) {
        /* A kernel that writes no cores has no such filter. */
    }
    close(file);
}

void vx_confine_cores(bool wanted)
{
    if (wanted) return;
    const struct rlimit none = {NO_CORE_BYTES, NO_CORE_BYTES};
    struct rlimit now;
    VX_ASSERT(!getrlimit(RLIMIT_CORE, &now));
    /* A hard limit of 0 may be below ours, and cannot be raised. */
    if (now.rlim_max >= NO_CORE_BYTES) VX_ASSERT(!setrlimit(RLIMIT_CORE, &none));
    cores_without_memory();
}
