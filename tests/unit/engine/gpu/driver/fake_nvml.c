/* fake_nvml - a library that tests open in NVML's place: it knows the fake GPU, and each query
 * of its energy adds a joule.  With FAKE_NVML_OLD it lacks the clocks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <string.h>

#define REFUSED 3 /* NVML_ERROR_NOT_SUPPORTED */
#define SM      1 /* NVML_CLOCK_SM */

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
int nvmlDeviceGetUtilizationRates(void *device, unsigned *shares);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts);
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules);
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz);

static int handle; /* the device */
static unsigned long long energy = 5000;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    *device = &handle;
    return strcmp(bus, "FFFFFFFF:FF:1F.7") ? REFUSED : 0; /* the fake GPU's */
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *shares)
{
    (void)device;
    shares[0] = 42;
    shares[1] = 99;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 312500;
    return 0;
}

int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *milliwatts)
{
    (void)device;
    *milliwatts = 700000;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    (void)device;
    *millijoules = energy;
    energy += 1000;
    return 0;
}

#ifndef FAKE_NVML_OLD
int nvmlDeviceGetClockInfo(void *device, int which, unsigned *mhz)
{
    (void)device;
    *mhz = 1755;
    return which == SM ? 0 : REFUSED;
}
#endif
