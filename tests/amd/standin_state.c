/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define POOL_BYTES (1u << 20)

struct standin standin = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};

static _Thread_local int device_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* --- settings --- */

static const struct standin_settings defaults = {
    .arch = "gfx942",
    .devices = 1,
    .memory = INT64_C(4) << 30,
    .seed = 1,
    .version = 60300000,
    .fail_count = 1,
    .fault_device = -1,
};

static i64 *number_of(struct standin_settings *settings, const char *word, size_t length)
{
    const struct {
        const char *name;
        i64 *number;
    } rows[] = {
        {"devices", &settings->devices},
        {"memory", &settings->memory},
        {"seed", &settings->seed},
        {"version", &settings->version},
        {"fail_call", &settings->fail_call},
        {"fail_code", &settings->fail_code},
        {"fail_count", &settings->fail_count},
        {"lose_launch", &settings->lose_launch},
        {"fault_device", &settings->fault_device},
    };
    for (size_t i = 0; i < VX_COUNT(rows); i++)
        if (strlen(rows[i].name) == length && !memcmp(rows[i].name, word, length))
            return rows[i].number;
    return NULL;
}

static bool set_word(struct standin_settings *settings, const char *word, size_t length)
{
    const char *is = memchr(word, '=', length);
    if (!is) return false;
    size_t name = (size_t)(is - word), rest = length - name - 1;
    if (name == 4 && !memcmp(word, "arch", 4)) {
        if (!rest || rest >= sizeof settings->arch) return false;
        memset(settings->arch, 0, sizeof settings->arch);
        memcpy(settings->arch, is + 1, rest);
        return true;
    }
    i64 *number = number_of(settings, word, name);
    char *end = NULL;
    if (number) *number = strtoll(is + 1, &end, 10);
    return number && end == word + length && end != is + 1;
}

static bool settings_parse(struct standin_settings *settings, const char *words)
{
    *settings = defaults;
    while (*words) {
        size_t length = strcspn(words, " ");
        if (length && !set_word(settings, words, length)) return false;
        words += length;
        words += strspn(words, " ");
    }
    return settings->devices >= 0 && settings->devices <= STANDIN_DEVICES_MAX;
}

static bool settings_apply(const char *words)
{
    pthread_mutex_lock(&standin.lock);
    bool known = settings_parse(&standin.settings, words);
    standin.calls = standin.launches = standin.kernels_run = 0;
    memset(standin.lost, 0, sizeof standin.lost);
    standin.why[0] = 0;
    pthread_mutex_unlock(&standin.lock);
    return known;
}

/* A word that is not known must not go by unnoticed: then there is no device. */
static void from_environment(void)
{
    const char *words = secure_getenv("VX_STANDIN_SETTINGS");
    if (settings_apply(words ? words : "")) return;
    (void)dprintf(
        2, "hip_standin: VX_STANDIN_SETTINGS has a word that is not known: %s\n", words);
    (void)settings_apply("devices=0");
}

bool hip_standin_set(const char *words)
{
    (void)pthread_once(&once, from_environment);
    return settings_apply(words);
}

i64 hip_standin_count(const char *what)
{
    i64 count = -1;
    pthread_mutex_lock(&standin.lock);
    if (!strcmp(what, "calls")) count = standin.calls;
    if (!strcmp(what, "launches")) count = standin.launches;
    if (!strcmp(what, "blocks")) count = standin.blocks;
    if (!strcmp(what, "memory")) {
        count = 0;
        for (int i = 0; i < STANDIN_DEVICES_MAX; i++) count += standin.used[i];
    }
    pthread_mutex_unlock(&standin.lock);
    return count;
}

const char *hip_standin_why(void)
{
    return standin.why;
}

/* --- calls --- */

int standin_device(void)
{
    return device_of_thread;
}

/* The codes that the vendors document as sticky; the engine has the same list. */
static bool is_sticky(int code)
{
    return code == 214 || code == 999 ||
           (code >= 700 && code <= 719 && code != 712 && code != 713 && code != 704 &&
            code != 705);
}

static int fault_now(void)
{
    const struct standin_settings *it = &standin.settings;
    if (it->fault_device >= 0 && it->fault_device != device_of_thread) return 0;
    standin.calls++;
    bool due = it->fail_call && standin.calls >= it->fail_call &&
               standin.calls < it->fail_call + it->fail_count;
    if (!due) return 0;
    if (is_sticky((int)it->fail_code))
        standin_lose(device_of_thread, (int)it->fail_code, "as the settings say");
    return (int)it->fail_code;
}

int standin_enter(void)
{
    (void)pthread_once(&once, from_environment);
    pthread_mutex_lock(&standin.lock);
    int lost = standin.lost[device_of_thread];
    return lost ? lost : fault_now();
}

int standin_leave(int code)
{
    pthread_mutex_unlock(&standin.lock);
    return code;
}

void standin_lose(int device, int code, const char *why)
{
    if (!standin.lost[device]) standin.lost[device] = code;
    if (!standin.why[0]) (void)snprintf(standin.why, sizeof standin.why, "%s", why);
}

/* --- the pool: no heap, because a thread that calls a driver may have none --- */

static void *pool;

void *standin_take(void)
{
    if (!pool) {
        u8 *made = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) return NULL;
        for (size_t at = 0; at < POOL_BYTES; at += STANDIN_BLOCK_BYTES) {
            memcpy(made + at, &pool, sizeof pool);
            pool = made + at;
        }
    }
    void *block = pool;
    memcpy(&pool, block, sizeof pool);
    memset(block, 0, STANDIN_BLOCK_BYTES);
    standin.blocks++;
    return block;
}

void standin_give(void *block)
{
    memset(block, 0, STANDIN_BLOCK_BYTES);
    memcpy(block, &pool, sizeof pool);
    pool = block;
    standin.blocks--;
}

bool standin_is(const void *object, enum standin_kind kind)
{
    return object && *(const enum standin_kind *)object == kind;
}

/* --- the devices --- */

int hipInit(unsigned flags)
{
    int code = standin_enter();
    if (!code && flags) code = STANDIN_INVALID_VALUE;
    if (!code && !standin.settings.devices) code = STANDIN_NO_DEVICE;
    return standin_leave(code);
}

int hipDriverGetVersion(int *version)
{
    int code = standin_enter();
    *version = (int)standin.settings.version;
    return standin_leave(code);
}

int hipRuntimeGetVersion(int *version)
{
    return hipDriverGetVersion(version);
}

int hipGetDeviceCount(int *count)
{
    int code = standin_enter();
    *count = (int)standin.settings.devices;
    if (!code && !*count) code = STANDIN_NO_DEVICE;
    return standin_leave(code);
}

static int check_device(int code, int device)
{
    if (code) return code;
    return device >= 0 && device < standin.settings.devices ? 0 : STANDIN_INVALID_DEVICE;
}

int hipDeviceGet(int *device, int index)
{
    int code = check_device(standin_enter(), index);
    *device = index;
    return standin_leave(code);
}

int hipDeviceGetName(char *name, int bytes, int device)
{
    int code = check_device(standin_enter(), device);
    (void)snprintf(name, (size_t)bytes, "stand-in %s", standin.settings.arch);
    return standin_leave(code);
}

/* "gfx90a": the last two digits are hexadecimal, the ones before them decimal. */
static int arch_number(int which)
{
    const char *digits = standin.settings.arch + 3;
    size_t length = strlen(standin.settings.arch) < 6 ? 0 : strlen(digits);
    char one[2] = {length ? digits[length - 2] : '0', 0};
    if (which) return (int)strtol(one, NULL, 16);
    char major[16] = "";
    if (length) (void)snprintf(major, sizeof major, "%.*s", (int)length - 2, digits);
    return (int)strtol(major, NULL, 10);
}

int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    int code = check_device(standin_enter(), device);
    *value = 0;
    switch (attribute) {
    case 5: *value = 1000 * 1000; break; /* ClockRate, kHz */
    case 19: *value = 1 << 20; break;    /* L2CacheSize */
    case 23: *value = arch_number(0); break;
    case 61: *value = arch_number(1); break;
    case 63: *value = 4; break; /* MultiprocessorCount */
    case 74: *value = AMD_LDS_BYTES; break;
    case 87: *value = arch_number(0) >= 10 ? 32 : 64; break; /* WarpSize */
    default: code = code ? code : STANDIN_INVALID_VALUE; break;
    }
    return standin_leave(code);
}

int hipDeviceGetUuid(void *id, int device)
{
    int code = check_device(standin_enter(), device);
    char text[17];
    (void)snprintf(text, sizeof text, "GPU-standin-%04d", device & 0xfff);
    memcpy(id, text, 16);
    return standin_leave(code);
}

/* A domain that no machine has: nothing is found about it in /sys. */
int hipDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    int code = check_device(standin_enter(), device);
    (void)snprintf(bus, (size_t)bytes, "fffe:%02x:00.0", device + 1);
    return standin_leave(code);
}

int hipDeviceTotalMem(size_t *bytes, int device)
{
    int code = check_device(standin_enter(), device);
    *bytes = (size_t)standin.settings.memory;
    return standin_leave(code);
}

/* The layout of release 6: 1472 bytes with gcnArchName at 1160; the rest is zero. */
int hipGetDevicePropertiesR0600(void *properties, int device)
{
    int code = check_device(standin_enter(), device);
    if (!code) {
        memset(properties, 0, 1472);
        (void)snprintf(properties, 256, "stand-in %s", standin.settings.arch);
        (void)snprintf((char *)properties + 1160, 256, "%s%s", standin.settings.arch,
                       arch_number(0) == 9 ? ":sramecc+:xnack-" : "");
    }
    return standin_leave(code);
}

/* Never fails because a device is lost: the thread may go to another one. */
int hipSetDevice(int device)
{
    (void)standin_enter();
    int code = check_device(0, device);
    if (!code) device_of_thread = device;
    return standin_leave(code);
}

int hipGetDevice(int *device)
{
    *device = device_of_thread;
    return 0;
}

int hipDeviceSynchronize(void)
{
    int code = standin_enter();
    if (!code) standin_wait_idle(device_of_thread);
    return standin_leave(code ? code : standin.lost[device_of_thread]);
}

/* --- errors --- */

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "hipSuccess", "no error"},
    {STANDIN_INVALID_VALUE, "hipErrorInvalidValue", "invalid argument"},
    {STANDIN_OUT_OF_MEMORY, "hipErrorOutOfMemory", "out of memory"},
    {STANDIN_NO_DEVICE, "hipErrorNoDevice", "no ROCm-capable device is detected"},
    {STANDIN_INVALID_DEVICE, "hipErrorInvalidDevice", "invalid device ordinal"},
    {STANDIN_BAD_IMAGE, "hipErrorInvalidImage", "device kernel image is invalid"},
    {STANDIN_NO_BINARY, "hipErrorNoBinaryForGpu",
     "no kernel image is available for execution on the device"},
    {STANDIN_INVALID_HANDLE, "hipErrorInvalidHandle", "invalid resource handle"},
    {STANDIN_ILLEGAL_STATE, "hipErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {STANDIN_NOT_FOUND, "hipErrorNotFound", "named symbol not found"},
    {STANDIN_NOT_READY, "hipErrorNotReady", "device not ready"},
    {STANDIN_ILLEGAL_ADDRESS, "hipErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {STANDIN_PINNED_ALREADY, "hipErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {STANDIN_NOT_PINNED, "hipErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {STANDIN_LAUNCH_FAILED, "hipErrorLaunchFailure",
     "unspecified launch failure in prior call"},
    {STANDIN_NOT_SUPPORTED, "hipErrorNotSupported", "operation not supported"},
};

const char *hipGetErrorString(int code)
{
    for (size_t i = 0; i < VX_COUNT(errors); i++)
        if (errors[i].code == code) return errors[i].text;
    return "unknown error";
}

const char *hipGetErrorName(int code)
{
    for (size_t i = 0; i < VX_COUNT(errors); i++)
        if (errors[i].code == code) return errors[i].name;
    return "hipErrorUnknown";
}

int hipDrvGetErrorString(int code, const char **text)
{
    *text = hipGetErrorString(code);
    return 0;
}
