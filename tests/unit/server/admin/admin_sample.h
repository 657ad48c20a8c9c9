/* admin_sample - a server in the middle of its life, for tests of metrics and pages.
 *
 * Two models that serve, one that loads, one that is broken, and a second instance of the
 * first model that is being unloaded; two workers, one of them down.
 *
 *   struct sample sample;
 *   sample_open(&sample);
 *   vx_metrics_render(&sample.sources, ...);
 *   sample_close(&sample);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_ADMIN_SAMPLE_H
#define VX_TESTS_UNIT_ADMIN_SAMPLE_H

#include "server/metrics/metrics.h"

/* Of worker 0's GPU. */
#define SAMPLE_UUID "GPU-ceafd5e8-f609-37b4-b5fe-d77f0c8adc00"

struct sample {
    struct vx_metrics *metrics;
    struct vx_registry *registry;
    struct vx_sched *sched;
    struct vx_exporter_counts spans;
    struct vx_rpc_counters rpc;
    struct vx_worker_view workers[2];
    struct vx_metrics_sources sources;
};

void sample_open(struct sample *sample);
/* One more model that serves; `reason` as if something were odd with it. */
void sample_add(struct sample *sample, const char *name, const char *reason);
void sample_close(struct sample *sample);

#endif
