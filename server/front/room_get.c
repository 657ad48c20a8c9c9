/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/front/room.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* From here on a limit counts as none: control groups of version 1 write a number near
 * 2^63 when no limit is set. */
#define MEMORY_ANY ((i64)1 << 60)

static i64 limit_of(int which)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)which, &limit)) return VX_ROOM_ANY;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > (rlim_t)VX_ROOM_ANY)
        return VX_ROOM_ANY;
    return (i64)limit.rlim_cur;
}

/* ------- files of /proc and /sys ------- */

static bool file_read(const char *path, char *text, size_t capacity)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t got = read(fd, text, capacity - 1);
    close(fd);
    if (got < 0) return false;
    text[got] = '\0';
    return true;
}

/* VX_ROOM_ANY for "max", and when the file cannot be read. */
static i64 number_of(const char *folder, const char *name)
{
    char path[PATH_MAX], text[64];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return VX_ROOM_ANY;
    if (!file_read(path, text, sizeof text)) return VX_ROOM_ANY;
    if (text[0] < '0' || text[0] > '9') return VX_ROOM_ANY;
    i64 number = strtoll(text, NULL, 10);
    return number >= MEMORY_ANY ? VX_ROOM_ANY : number;
}

/* The folder of this process's control group for `controller`; "" for version 2.  In a
 * container the group's own path may not exist; then the root is the group. */
static bool group_folder(const char *controller, char folder[PATH_MAX])
{
    char text[4096];
    if (!file_read("/proc/self/cgroup", text, sizeof text)) return false;
    for (char *line = text, *next; line && *line; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path) continue;
        *path++ = '\0';
        if (strcmp(names + 1, controller)) continue;
        const char *slash = *controller ? "/" : "";
        snprintf(folder, PATH_MAX, "/sys/fs/cgroup%s%s%s", slash, controller, path);
        if (access(folder, R_OK))
            snprintf(folder, PATH_MAX, "/sys/fs/cgroup%s%s", slash, controller);
        return true;
    }
    return false;
}

/* ------- memory ------- */

static i64 memory_limit(void)
{
    char folder[PATH_MAX];
    i64 least = (i64)sysconf(_SC_PHYS_PAGES) * (i64)sysconf(_SC_PAGESIZE);
    i64 group = VX_ROOM_ANY;
    if (group_folder("", folder)) group = number_of(folder, "memory.max");
    if (group < least) least = group;
    if (group_folder("memory", folder))
        group = number_of(folder, "memory.limit_in_bytes");
    return group < least ? group : least;
}

/* ------- threads ------- */

static i64 threads_of_process(const char *pid)
{
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/%.32s/status", pid);
    if (!file_read(path, text, sizeof text)) return 0; /* it has ended */
    const char *at = strstr(text, "\nThreads:");
    return at ? strtoll(at + 9, NULL, 10) : 0;
}

/* Threads of all processes of this user, as the kernel counts for RLIMIT_NPROC. */
static i64 threads_of_user(void)
{
    i64 count = 0;
    DIR *processes = opendir("/proc");
    if (!processes) return 0;
    for (struct dirent *entry; (entry = readdir(processes));) {
        char path[64];
        struct stat owner;
        if (entry->d_name[0] < '1' || entry->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%.32s", entry->d_name);
        if (!stat(path, &owner) && owner.st_uid == getuid())
            count += threads_of_process(entry->d_name);
    }
    closedir(processes);
    return count;
}

static void threads_hold(struct vx_room *room, i64 limit, i64 used, const char *why)
{
    if (limit == VX_ROOM_ANY || used == VX_ROOM_ANY) return;
    i64 left = limit > used ? limit - used : 0;
    if (left >= room->threads) return;
    room->threads = left;
    room->threads_why = why;
}

static void threads_get(struct vx_room *room)
{
    static const char *const groups[] = {"", "pids"};
    char folder[PATH_MAX];
    room->threads = VX_ROOM_ANY;
    room->threads_why = "";
    i64 limit = limit_of(RLIMIT_NPROC);
    /* The limit does not bind root. */
    if (limit != VX_ROOM_ANY && geteuid())
        threads_hold(room, limit, threads_of_user(),
                     "the limit of a user's threads (RLIMIT_NPROC: ulimit -u, systemd's "
                     "LimitNPROC)");
    for (size_t i = 0; i < VX_COUNT(groups); i++)
        if (group_folder(groups[i], folder))
            threads_hold(room, number_of(folder, "pids.max"),
                         number_of(folder, "pids.current"),
                         "the control group's limit of threads (pids.max, systemd's "
                         "TasksMax)");
}

void vx_room_get(struct vx_room *room)
{
    *room = (struct vx_room){
        .files = limit_of(RLIMIT_NOFILE),
        .file_bytes = limit_of(RLIMIT_FSIZE),
        .address_bytes = limit_of(RLIMIT_AS),
        .data_bytes = limit_of(RLIMIT_DATA),
        .memory_bytes = memory_limit(),
    };
    threads_get(room);
}
