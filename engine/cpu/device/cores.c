/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/cpu/device/cores.h"

#include "engine/base/limits.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#define TEXT_BYTES 128

i32 vx_cores_of_quota(const char *text)
{
    char *end;
    long long quota = strtoll(text, &end, 10); /* "max", and -1 in v1, mean no limit */
    if (end == text || quota <= 0) return 0;
    const char *second = end;
    long long period = strtoll(second, &end, 10);
    if (end == second || period <= 0) return 0;
    long long cores = (quota - 1) / period + 1;
    return cores < VX_CPU_THREADS_MAX ? (i32)cores : VX_CPU_THREADS_MAX;
}

/* Reads the first line of DIRECTORY/NAME; "" when there is none. */
static void read_line(const char *directory, const char *name, char *line, int bytes)
{
    char path[PATH_MAX];
    line[0] = 0;
    int length = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (length < 0 || (size_t)length >= sizeof path) return;
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (!fgets(line, bytes, file)) line[0] = 0;
    (void)fclose(file);
    line[strcspn(line, "\n")] = 0;
}

static void shrink(i32 *cores, i32 limit)
{
    if (limit > 0 && limit < *cores) *cores = limit;
}

static void shrink_by_directory(i32 *cores, const char *directory)
{
    char text[TEXT_BYTES];
    char both[2 * TEXT_BYTES];
    char period[TEXT_BYTES];
    read_line(directory, "cpu.max", text, sizeof text);
    shrink(cores, vx_cores_of_quota(text));
    read_line(directory, "cpu.cfs_quota_us", text, sizeof text);
    read_line(directory, "cpu.cfs_period_us", period, sizeof period);
    (void)snprintf(both, sizeof both, "%s %s", text, period);
    shrink(cores, vx_cores_of_quota(both));
}

/* Applies the quotas of a group and of all groups above it; in a container the path may
 * be that of the host and lead nowhere. */
static void shrink_by_group(i32 *cores, const char *mount, const char *group)
{
    char directory[PATH_MAX];
    int length = snprintf(directory, sizeof directory, "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof directory) return;
    for (;;) {
        shrink_by_directory(cores, directory);
        char *slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < strlen(mount)) return;
        *slash = 0;
    }
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; the root is always read. */
static void shrink_by_groups(i32 *cores)
{
    char line[PATH_MAX];
    shrink_by_directory(cores, "/sys/fs/cgroup");
    shrink_by_directory(cores, "/sys/fs/cgroup/cpu");
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path) continue;
        *path++ = 0;
        controllers++;
        if (!*controllers) shrink_by_group(cores, "/sys/fs/cgroup", path);
        if (!strcmp(controllers, "cpu") || !strncmp(controllers, "cpu,", 4))
            shrink_by_group(cores, "/sys/fs/cgroup/cpu", path);
    }
    (void)fclose(file);
}

i32 vx_cores_usable(void)
{
    cpu_set_t set;
    i32 cores = 1;
    if (!sched_getaffinity(0, sizeof set, &set)) cores = CPU_COUNT(&set);
    if (cores > VX_CPU_THREADS_MAX) cores = VX_CPU_THREADS_MAX;
    if (cores < 1) cores = 1;
    shrink_by_groups(&cores);
    return cores;
}

void vx_cores_name(char *name, size_t bytes)
{
    char line[TEXT_BYTES];
    struct utsname system;
    (void)snprintf(name, bytes, "%s", uname(&system) ? "CPU" : system.machine);
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "model name", 10) != 0) continue;
        const char *value = strchr(line, ':');
        if (!value) break;
        value += 1 + strspn(value + 1, " \t");
        (void)snprintf(name, bytes, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    (void)fclose(file);
}
