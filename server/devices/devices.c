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

#define EXPECTED "expected cpu, cuda:N, cuda, hip:N, hip or auto"

static const struct vendor {
    const char *word; /* every GPU of the vendor; "cuda:0" is one */
    enum vx_device_kind kind;
} vendors[] = {{"cuda", VX_DEVICE_CUDA}, {"hip", VX_DEVICE_HIP}};

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

static bool fake_read(const char *name, struct vx_device *device)
{
    static const char fake[] = "fake:0", lose[] = ":lose=";
    if (strncmp(name, fake, sizeof fake - 1)) return false;
    const char *rest = name + sizeof fake - 1;
    device->kind = VX_DEVICE_FAKE;
    if (!*rest) return true;
    return !strncmp(rest, lose, sizeof lose - 1) &&
           number_parse(rest + sizeof lose - 1, INT32_MAX, &device->lose_launch) &&
           device->lose_launch > 0;
}

/* What follows "cuda:"; NULL = the name is not of this vendor. */
static const char *vendor_rest(const char *name, const struct vendor *vendor)
{
    const size_t length = strlen(vendor->word);
    return strncmp(name, vendor->word, length) || name[length] != ':' ? NULL
                                                                      : name + length + 1;
}

static bool device_read(const char *name, struct vx_device *device)
{
    *device = (struct vx_device){.kind = VX_DEVICE_CPU};
    if (!strcmp(name, "cpu")) return true;
    for (size_t i = 0; i < VX_COUNT(vendors); i++) {
        const char *rest = vendor_rest(name, &vendors[i]);
        i64 index = 0;
        if (!rest) continue;
        if (!number_parse(rest, VX_WORKERS_MAX - 1, &index)) return false;
        device->kind = vendors[i].kind;
        device->index = (i32)index;
        return true;
    }
    return fake_read(name, device);
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
    const bool hip = !strcmp(config->device, "hip");
    const char *driver = hip ? config->hip_library : config->gpu_driver;
    i32 count = vx_engine_devices(hip ? VX_DEVICE_HIP : VX_DEVICE_CUDA,
                                  driver[0] ? driver : NULL, &why);
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

/* Each vendor's library in a child of its own: one that hangs or crashes hides none of
 * the other's devices. */
static i32 probe_count(const struct vx_config *config, const struct vendor *vendor,
                       struct vx_why *why)
{
    char driver[VX_CONFIG_TEXT_BYTES + 16], line[VX_WHY_BYTES + 16] = "";
    char program[] = "voxeld", command[] = "probe", device[16];
    char *arguments[] = {program, command, device, driver, NULL};
    int fds[2];
    pid_t pid;
    const bool hip = vendor->kind == VX_DEVICE_HIP;
    snprintf(device, sizeof device, "--device=%s", vendor->word);
    snprintf(driver, sizeof driver, hip ? "--hip-library=%s" : "--gpu-driver=%s",
             hip ? config->hip_library : config->gpu_driver);
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

/* Adds all GPUs of a vendor; none, and `none` says why. */
static vx_status list_add_found(const struct vx_config *config,
                                const struct vendor *vendor, struct vx_device_list *list,
                                struct vx_why *none, struct vx_why *why)
{
    i32 count = probe_count(config, vendor, none);
    for (i32 i = 0; i < count; i++) {
        char name[VX_DEVICE_NAME_BYTES];
        snprintf(name, sizeof name, "%s:%d", vendor->word, i);
        VX_TRY(list_add(list, name, why));
    }
    if (count) none->text[0] = '\0';
    return VX_OK;
}

/* `used` is the device that is used instead of the ones that were not found. */
static void list_say_none(const char *used, const struct vx_why *none)
{
    if (none->text[0])
        VX_LOG(CONFIG, VX_LOG_TEXT("device", used), VX_LOG_TEXT("why", none->text));
}

static vx_status list_add_auto(const struct vx_config *config,
                               struct vx_device_list *list, struct vx_why *why)
{
    struct vx_why none[VX_COUNT(vendors)] = {{""}};
    const i32 before = list->count;
    for (size_t i = 0; i < VX_COUNT(vendors); i++)
        VX_TRY(list_add_found(config, &vendors[i], list, &none[i], why));
    const bool found = list->count > before;
    for (size_t i = 0; i < VX_COUNT(vendors); i++)
        list_say_none(found ? list->names[before] : "cpu", &none[i]);
    return found ? VX_OK : list_add(list, "cpu", why);
}

/* The worker of cuda:0 or hip:0 is restarted until it can open its device, so it finds a
 * driver that comes up later. */
static vx_status list_add_word(const struct vx_config *config, const char *name,
                               struct vx_device_list *list, struct vx_why *why)
{
    struct vx_device device;
    if (!strcmp(name, "auto")) return list_add_auto(config, list, why);
    for (size_t i = 0; i < VX_COUNT(vendors); i++) {
        char first[VX_DEVICE_NAME_BYTES];
        struct vx_why none = {""};
        const i32 before = list->count;
        if (strcmp(name, vendors[i].word)) continue;
        snprintf(first, sizeof first, "%s:0", vendors[i].word);
        VX_TRY(list_add_found(config, &vendors[i], list, &none, why));
        list_say_none(first, &none);
        return list->count > before ? VX_OK : list_add(list, first, why);
    }
    VX_TRY(vx_device_parse(name, why, &device));
    return list_add(list, name, why);
}

/* The next word of the setting; *at is NULL behind the last one. */
static vx_status word_take(const char **at, char name[VX_DEVICE_NAME_BYTES],
                           struct vx_why *why)
{
    size_t length = strcspn(*at, ",");
    VX_ENSURE_WHY(length < VX_DEVICE_NAME_BYTES, why, INVALID_ARGUMENT, "unknown device",
                  "device: " EXPECTED ", got '%.*s...'", VX_DEVICE_NAME_BYTES, *at);
    snprintf(name, VX_DEVICE_NAME_BYTES, "%.*s", (int)length, *at);
    *at = (*at)[length] ? *at + length + 1 : NULL;
    return VX_OK;
}

vx_status vx_devices_list(const struct vx_config *config, struct vx_why *why,
                          struct vx_device_list *list)
{
    list->count = 0;
    for (const char *at = config->device; at;) {
        char name[VX_DEVICE_NAME_BYTES];
        VX_TRY(word_take(&at, name, why));
        VX_TRY(list_add_word(config, name, list, why));
    }
    return VX_OK;
}

static bool word_is_open(const char *name)
{
    bool open = !strcmp(name, "auto");
    for (size_t i = 0; i < VX_COUNT(vendors); i++)
        open = open || !strcmp(name, vendors[i].word);
    return open;
}

vx_status vx_devices_read(const struct vx_config *config, struct vx_why *why,
                          struct vx_device_list *list, bool *open)
{
    list->count = 0;
    *open = false;
    for (const char *at = config->device; at;) {
        char name[VX_DEVICE_NAME_BYTES];
        struct vx_device device;
        VX_TRY(word_take(&at, name, why));
        if (word_is_open(name))
            *open = true;
        else
            VX_TRY(vx_device_parse(name, why, &device));
        VX_TRY(list_add(list, name, why)); /* an open word stands for one at least */
    }
    return VX_OK;
}

/* ------- NUMA nodes ------- */

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD    0x1002
/* The highest byte of three. */
#define CLASS_DISPLAY  0x03 /* VGA and 3D controllers */
#define CLASS_COMPUTE  0x12 /* processing accelerators: MI300X */
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
    const long vendor = pci_number(device, "vendor");
    const long class = pci_number(device, "class") >> CLASS_SHIFT;
    if (vendor != VENDOR_NVIDIA && vendor != VENDOR_AMD) return 0;
    if (class != CLASS_DISPLAY && !(vendor == VENDOR_AMD && class == CLASS_COMPUTE))
        return 0;
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

bool vx_devices_has_gpu(const struct vx_device_list *list)
{
    for (i32 i = 0; i < list->count; i++)
        for (size_t v = 0; v < VX_COUNT(vendors); v++)
            if (vendor_rest(list->names[i], &vendors[v])) return true;
    return false;
}
