/* amd/hip - the functions of HIP that the stand-in has, with the types of driver.def.
 *
 * They behave as the ones of AMD's library, as far as its documents say how; what they
 * refuse beyond that is in standin.h.
 *
 * Thread   any; a thread has a device of its own (hipSetDevice).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_AMD_HIP_H
#define VX_TESTS_AMD_HIP_H

#include "engine/gpu/driver/driver.h"

typedef unsigned hip_word; /* so that the list below fits its lines */

int hipInit(unsigned flags);
int hipDriverGetVersion(int *version);
int hipRuntimeGetVersion(int *version);
int hipGetDeviceCount(int *count);
int hipDeviceGet(int *device, int index);
int hipDeviceGetName(char *name, int bytes, int device);
int hipDeviceGetAttribute(int *value, int attribute, int device);
int hipDeviceGetUuid(void *id, int device);
int hipDeviceGetPCIBusId(char *bus, int bytes, int device);
int hipDeviceTotalMem(size_t *bytes, int device);
int hipGetDevicePropertiesR0600(void *properties, int device);
int hipSetDevice(int device);
int hipGetDevice(int *device);
int hipDeviceSynchronize(void);
int hipDrvGetErrorString(int code, const char **text);
const char *hipGetErrorString(int code);
const char *hipGetErrorName(int code);

int hipMemGetInfo(size_t *free_bytes, size_t *total);
int hipMalloc(u64 *address, size_t bytes);
int hipFree(u64 address);
int hipHostRegister(void *memory, size_t bytes, unsigned flags);
int hipHostUnregister(void *memory);
int hipHostMalloc(void **memory, size_t bytes, unsigned flags);
int hipHostFree(void *memory);
int hipIpcGetMemHandle(struct vx_driver_ipc *handle, u64 address);
int hipIpcOpenMemHandle(u64 *address, struct vx_driver_ipc handle, unsigned flags);
int hipIpcCloseMemHandle(u64 address);
int hipMemGetAddressRange(u64 *base, size_t *bytes, u64 address);
int hipPointerGetAttribute(void *value, int attribute, u64 address);

int hipMemcpyHtoDAsync(u64 to, const void *from, size_t bytes, void *stream);
int hipMemcpyDtoHAsync(void *to, u64 from, size_t bytes, void *stream);
int hipMemcpyDtoDAsync(u64 to, u64 from, size_t bytes, void *stream);
int hipMemsetD32Async(u64 to, unsigned value, size_t words, void *stream);
int hipStreamCreateWithPriority(void **stream, unsigned flags, int priority);
int hipStreamDestroy(void *stream);
int hipStreamSynchronize(void *stream);
int hipStreamQuery(void *stream);
int hipStreamWaitEvent(void *stream, void *event, unsigned flags);
int hipEventCreateWithFlags(void **event, unsigned flags);
int hipEventDestroy(void *event);
int hipEventRecord(void *event, void *stream);
int hipEventQuery(void *event);
int hipEventSynchronize(void *event);
int hipEventElapsedTime(f32 *ms, void *begin, void *end);

int hipStreamBeginCapture(void *stream, int mode);
int hipStreamEndCapture(void *stream, void **recording);
int hipGraphInstantiateWithFlags(void **graph, void *recording, unsigned long long flags);
int hipGraphLaunch(void *graph, void *stream);
int hipGraphExecDestroy(void *graph);
int hipGraphDestroy(void *recording);

int hipModuleLoadData(void **module, const void *image);
int hipModuleUnload(void *module);
int hipModuleGetFunction(void **function, void *module, const char *name);
/* clang-format off */
int hipModuleLaunchKernel(void *, hip_word, hip_word, hip_word, hip_word, hip_word, hip_word, hip_word, void *, void **, void **);
/* clang-format on */

/* --- not HIP's: for tests --- */

/* Takes settings as VX_STANDIN_SETTINGS has them, and begins to count anew; the devices
 * are whole again.  False: a word is not known.  Only while nothing runs. */
bool hip_standin_set(const char *words);
/* "calls", "launches", "memory" (bytes of all devices), "blocks"; -1 = no such count. */
i64 hip_standin_count(const char *what);
/* What the first kernel that failed did; "" = none. */
const char *hip_standin_why(void);

#endif
