/* stub_hip - a library that test_gpu_hip opens in the place of AMD's: it has no GPU, and
 * answers what the test wrote into `stub_hip`.  Device memory is the host's, streams and
 * events are names, nothing is launched.
 *
 * The functions are written with plain types: only their names and sizes matter to dlsym.
 * With STUB_LACKS_LAUNCH one of them is left out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/engine/gpu/driver/stub_hip.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define BLOCK_BYTES 4096 /* of what an IPC handle names */

struct stub_hip stub_hip;
static char block[BLOCK_BYTES];

int hipInit(unsigned flags)
{
    return flags ? 1 : stub_hip.init;
}
int hipDriverGetVersion(int *version)
{
    *version = stub_hip.version;
    return 0;
}
int hipGetDeviceCount(int *count)
{
    *count = stub_hip.count;
    return stub_hip.count ? 0 : 100;
}
int hipDeviceGet(int *device, int index)
{
    *device = index;
    return 0;
}
int hipDeviceGetName(char *name, int bytes, int device)
{
    if (stub_hip.nameless)
        name[0] = '\0';
    else
        (void)snprintf(name, (size_t)bytes, "AMD stub %d", device);
    return 0;
}
int hipDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    if (attribute < 0 || attribute >= STUB_ATTRIBUTES) return 1;
    if (stub_hip.attributes[attribute] < 0) return 1;
    *value = stub_hip.attributes[attribute];
    return 0;
}
int hipDeviceGetUuid(void *uuid, int device)
{
    (void)device;
    memcpy(uuid, "0123456789abcdef", 16);
    return 0;
}
int hipDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    (void)device;
    (void)snprintf(bus, (size_t)bytes, "%s", stub_hip.bus);
    return stub_hip.bus[0] ? 0 : 101;
}
int hipDeviceTotalMem(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)64 << 30;
    return 0;
}
int hipMemGetInfo(size_t *have, size_t *total)
{
    *have = (size_t)60 << 30;
    *total = (size_t)64 << 30;
    return 0;
}
int hipMalloc(void **memory, size_t bytes)
{
    if (bytes > (size_t)64 << 30) return 2;
    return (*memory = malloc(bytes)) ? 0 : 2;
}
int hipFree(void *memory)
{
    free(memory);
    return 0;
}
int hipHostRegister(void *memory, size_t bytes, unsigned flags)
{
    return memory && bytes && !flags ? 0 : 1;
}
int hipHostUnregister(void *memory)
{
    return memory ? 0 : 1;
}
int hipHostMalloc(void **memory, size_t bytes, unsigned flags)
{
    return !flags && (*memory = malloc(bytes)) ? 0 : 2;
}
int hipHostFree(void *memory)
{
    free(memory);
    return 0;
}
struct ipc {
    char bytes[64];
};
int hipIpcOpenMemHandle(void **memory, struct ipc handle, unsigned flags)
{
    stub_hip.ipc_flags = flags;
    if (strcmp(handle.bytes, "stub")) return 1;
    *memory = block;
    return 0;
}
int hipIpcCloseMemHandle(void *memory)
{
    return memory == block ? 0 : 1;
}
int hipMemGetAddressRange(void **base, size_t *bytes, void *memory)
{
    *base = block;
    *bytes = sizeof block;
    return memory == block ? 0 : 1;
}
int hipPointerGetAttribute(void *value, int attribute, void *memory)
{
    if (attribute != 9 || memory != block) return 1; /* DEVICE_ORDINAL */
    memcpy(value, &stub_hip.pointer_device, sizeof stub_hip.pointer_device);
    return 0;
}
int hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, void *stream)
{
    (void)stream;
    memcpy(to, from, bytes);
    return 0;
}
int hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, void *stream)
{
    return hipMemcpyHtoDAsync(to, from, bytes, stream);
}
int hipMemcpyDtoDAsync(void *to, void *from, size_t bytes, void *stream)
{
    return hipMemcpyHtoDAsync(to, from, bytes, stream);
}
int hipMemsetD32Async(void *to, int value, size_t words, void *stream)
{
    (void)stream;
    for (size_t i = 0; i < words; i++) ((int *)to)[i] = value;
    return 0;
}
int hipSetDevice(int device)
{
    stub_hip.used = device;
    return 0;
}
const char *hipGetErrorString(int code)
{
    return code == 2 ? "out of memory" : "an error of the stub";
}

/* The layout of release 6. */
int hipGetDevicePropertiesR0600(char *properties, int device)
{
    (void)device;
    memset(properties, 0xa5, 1472);
    memcpy(properties + 1160, stub_hip.arch, sizeof stub_hip.arch);
    return stub_hip.struct_code;
}

/* What the test's device path opens and closes, and what it never calls. */
#define NAMED(name_)                                                                     \
    int name_(void **object)                                                             \
    {                                                                                    \
        *object = block;                                                                 \
        return 0;                                                                        \
    }
#define NOTHING(name_)                                                                   \
    int name_(void)                                                                      \
    {                                                                                    \
        return 0;                                                                        \
    }
#define NEVER(name_)                                                                     \
    int name_(void)                                                                      \
    {                                                                                    \
        abort();                                                                         \
    }
NAMED(hipStreamCreateWithPriority)
NAMED(hipEventCreateWithFlags)
NOTHING(hipStreamDestroy)
NOTHING(hipStreamSynchronize)
NOTHING(hipStreamWaitEvent)
NOTHING(hipEventDestroy)
NOTHING(hipEventRecord)
NOTHING(hipEventQuery)
NEVER(hipEventElapsedTime)
NEVER(hipStreamBeginCapture)
NEVER(hipStreamEndCapture)
NEVER(hipGraphInstantiateWithFlags)
NEVER(hipGraphLaunch)
NEVER(hipGraphExecDestroy)
NEVER(hipGraphDestroy)
NEVER(hipModuleLoadData)
NEVER(hipModuleUnload)
NEVER(hipModuleGetFunction)
#ifndef STUB_LACKS_LAUNCH
NEVER(hipModuleLaunchKernel)
#endif
