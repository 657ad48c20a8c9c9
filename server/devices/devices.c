/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/devices/devices.h"

#include "engine/base/process/clock.h"
#include "engine/base/process/log.h"
#include "engine/base/process/print.h"
#include "engine/engine.h"
#include "server/devices/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* On a large machine a driver that was not in use takes a second per GPU to start; one
 * that hangs never answers. */
#define PROBE_MS 30000
/* How long the child may take to end after it has answered or was killed. */
#define PROBE_ENDS_MS 2000

#define EXPECTED "expected cpu, cuda:N, cuda or auto"

/* ------- one name ------- */

/* False unless `text` is a whole number up to `most` and nothing else. */
static bool number_parse(const char *text, i64 most, i64 *number)
{
    if (*text < '0' || *text > '9') return false;
    char *end;
    errno = 0;
    *number = strtoll(text, &end, 10);
    return !errno && !*end && *number <= most;
}

static bool device_read(const char *name, struct vx_device *device)
{
    static const char cuda[] = "cuda:", fake[] = "fake:0", lose[] = ":lose=";
    *device = (struct vx_device){.kind = VX_DEVICE_CPU};
    if (!strcmp(name, "cpu")) return true;
    if (!strncmp(name, cuda, sizeof cuda - 1)) {
        i64 index = 0;
        device->kind = VX_DEVICE_CUDA;
        if (!number_parse(name + sizeof cuda - 1, VX_WORKERS_MAX - 1, &index))
            return false;
        device->index = (i32)index;
        return true;
    }
    if (strncmp(name, fake, sizeof fake - 1)) return false;
    const char *rest = name + sizeof fake - 1;
    device->kind = VX_DEVICE_FAKE;
    if (!*rest) return true;
    return !strncmp(rest, lose, sizeof lose - 1) &&
           number_parse(rest + sizeof lose - 1, INT32_MAX, &device->lose_launch) &&
           device->lose_launch > 0;
}

vx_status vx_device_parse(const char *name, struct vx_why *why, struct vx_device *device)
{
    VX_ENSURE_WHY(device_read(name, device), why, INVALID_ARGUMENT, "unknown device",
                  "device: " EXPECTED ", N from 0 to %d, got '%.64s'", VX_WORKERS_MAX - 1,
                  name);
    return VX_OK;
}

i64 vx_device_id(const char *name, i32 worker)
{
    struct vx_device device;
    if (vx_device_parse(name, NULL, &device).fault || device.kind == VX_DEVICE_CPU)
        return -1;
    return device.kind == VX_DEVICE_FAKE ? worker : device.index;
}

/* ------- what the machine has ------- */

/* Prints the child's one line: a number, and a sentence when it is 0. */
int vx_devices_probe(const struct vx_config *config)
{
    struct vx_why why = {""};
    const char *driver = config->gpu_driver[0] ? config->gpu_driver : NULL;
    i32 count = vx_engine_devices(VX_DEVICE_CUDA, driver, &why);
    vx_print("%d %s\n", count, why.text);
    return 0;
}

/* Reads until the end or the deadline; false when the deadline came first. */
static bool probe_read(int fd, char *line, size_t bytes)
{
    i64 deadline_ns = vx_clock_ns() + PROBE_MS * VX_NS_PER_MS;
    size_t have = 0;
    for (;;) {
        i64 left_ns = deadline_ns - vx_clock_ns();
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        if (left_ns <= 0) return false;
        int ready = poll(&readable, 1, (int)(left_ns / VX_NS_PER_MS) + 1);
        if (ready <= 0) continue;
        ssize_t got = read(fd, line + have, bytes - 1 - have);
        if (got < 0 && errno == EINTR) continue;
        if (got > 0) have += (size_t)got;
        line[have] = '\0';
        if (got <= 0 || have == bytes - 1) return true;
    }
}

/* How many GPUs the child's line reports; 0, and `why`. */
static i32 probe_line(const char *line, struct vx_why *why)
{
    char *sentence;
    long count = strtol(line, &sentence, 10);
    if (sentence == line || count < 0) {
        vx_why_set(why, "the process that asked the GPU driver ended without an answer");
        return 0;
    }
    sentence += strspn(sentence, " ");
    vx_why_set(why, "%.*s", (int)strcspn(sentence, "\n"), sentence);
    return count > VX_WORKERS_MAX ? VX_WORKERS_MAX + 1 : (i32)count;
}

/* Waits until the child has ended, at most PROBE_ENDS_MS.  A process that hangs inside
 * the driver does not even die of SIGKILL: it is left behind, and the system reaps it
 * after this process has ended. */
static void probe_leave(pid_t pid)
{
    const struct timespec pause = {.tv_nsec = 10 * VX_NS_PER_MS};
    for (int i = 0; i < PROBE_ENDS_MS / 10; i++) {
        if (waitpid(pid, NULL, WNOHANG) != 0) return;
        (void)nanosleep(&pause, NULL);
    }
}

static i32 probe_count(const struct vx_config *config, struct vx_why *why)
{
    char driver[VX_CONFIG_TEXT_BYTES + 16], line[VX_WHY_BYTES + 16] = "";
    char program[] = "voxeld", command[] = "probe";
    char *arguments[] = {program, command, driver, NULL};
    int fds[2];
    pid_t pid;
    snprintf(driver, sizeof driver, "--gpu-driver=%s", config->gpu_driver);
    if (pipe2(fds, O_CLOEXEC)) {
        vx_why_set(
            why, "could not create a pipe for the process that asks the GPU driver: %m");
        return 0;
    }
    const struct vx_spawn spawn = {arguments, {{fds[1], STDOUT_FILENO}}, 1};
    int failed = vx_spawn_self(&spawn, &pid);
    close(fds[1]);
    bool answered = !failed && probe_read(fds[0], line, sizeof line);
    close(fds[0]);
    if (failed) {
        vx_why_set(why, "the process that asks the GPU driver could not be started: %s",
                   strerror(failed));
        return 0;
    }
    if (!answered) kill(pid, SIGKILL); /* not waited for yet: the pid is still its own */
    probe_leave(pid);
    if (answered) return probe_line(line, why);
    vx_why_set(why, "the GPU driver did not answer in %d s", PROBE_MS / 1000);
    return 0;
}

/* ------- the list ------- */

static vx_status list_add(struct vx_device_list *list, const char *name,
                          struct vx_why *why)
{
    VX_ENSURE_WHY(list->count < VX_WORKERS_MAX, why, INVALID_ARGUMENT, "too many devices",
                  "device: expected at most %d devices, got more", VX_WORKERS_MAX);
    snprintf(list->names[list->count++], VX_DEVICE_NAME_BYTES, "%s", name);
    return VX_OK;
}

/* Adds all GPUs, or `otherwise` when there is none.  The worker of cuda:0 is restarted
 * until it can open its device, so it finds a driver that comes up later. */
static vx_status list_add_found(const struct vx_config *config, const char *otherwise,
                                struct vx_device_list *list, struct vx_why *why)
{
    struct vx_why none = {""};
    i32 count = probe_count(config, &none);
    if (!count) {
        VX_LOG(CONFIG, VX_LOG_TEXT("device", otherwise), VX_LOG_TEXT("why", none.text));
        return list_add(list, otherwise, why);
    }
    for (i32 i = 0; i < count; i++) {
        char name[VX_DEVICE_NAME_BYTES];
        snprintf(name, sizeof name, "cuda:%d", i);
        VX_TRY(list_add(list, name, why));
    }
    return VX_OK;
}

vx_status vx_devices_list(const struct vx_config *config, struct vx_why *why,
                          struct vx_device_list *list)
{
    list->count = 0;
    for (const char *at = config->device;;) {
        char name[VX_DEVICE_NAME_BYTES];
        size_t length = strcspn(at, ",");
        struct vx_device device;
        VX_ENSURE_WHY(length < sizeof name, why, INVALID_ARGUMENT, "unknown device",
                      "device: " EXPECTED ", got '%.*s...'", VX_DEVICE_NAME_BYTES, at);
        snprintf(name, sizeof name, "%.*s", (int)length, at);
        if (!strcmp(name, "cuda")) {
            VX_TRY(list_add_found(config, "cuda:0", list, why));
        } else if (!strcmp(name, "auto")) {
            VX_TRY(list_add_found(config, "cpu", list, why));
        } else {
            VX_TRY(vx_device_parse(name, why, &device));
            VX_TRY(list_add(list, name, why));
        }
        if (!at[length]) return VX_OK;
        at += length + 1;
    }
}

/* ------- NUMA nodes ------- */

#define VENDOR_NVIDIA  0x10de
#define CLASS_DISPLAY  0x03 /* the highest byte of three: VGA and 3D controllers */
#define CLASS_SHIFT    16
#define NODES_MAX      64
#define PCI_LINE_BYTES 32

/* The number in a file of a device's folder: "0x10de", "-1"; -1 when there is none. */
static long pci_number(int device, const char *name)
{
    char line[PCI_LINE_BYTES];
    int file = openat(device, name, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    ssize_t got = read(file, line, sizeof line - 1);
    close(file);
    line[got > 0 ? got : 0] = '\0';
    return got > 0 ? strtol(line, NULL, 0) : -1;
}

static u64 pci_node(int device)
{
    if (pci_number(device, "vendor") != VENDOR_NVIDIA) return 0;
    if (pci_number(device, "class") >> CLASS_SHIFT != CLASS_DISPLAY) return 0;
    long node = pci_number(device, "numa_node");
    return node >= 0 && node < NODES_MAX ? UINT64_C(1) << node : 0;
}

u64 vx_devices_gpu_nodes(const char *folder)
{
    u64 nodes = 0;
    DIR *devices = opendir(folder);
    if (!devices) return 0;
    for (const struct dirent *entry; (entry = readdir(devices));) {
        if (entry->d_name[0] == '.') continue;
        int device = openat(dirfd(devices), entry->d_name, O_PATH | O_CLOEXEC);
        if (device < 0) continue;
        nodes |= pci_node(device);
        close(device);
    }
    closedir(devices);
    return nodes;
}

bool vx_devices_has_cuda(const struct vx_device_list *list)
{
    for (i32 i = 0; i < list->count; i++)
        if (!strncmp(list->names[i], "cuda:", sizeof "cuda:" - 1)) return true;
    return false;
}
