/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "server/trace/exporter.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/base/process/log.h"
#include "engine/base/process/thread.h"
#include "server/base/backoff.h"
#include "server/trace/collector.h"
#include "server/trace/record_ring.h"
#include "server/trace/span_pack.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

/* So many requests are VX_EXPORTER_SPANS, if all their stages were reached. */
#define WAKE_RECORDS (VX_EXPORTER_SPANS / VX_RECORD_SPANS_MAX)
/* As OTLP's other clients: the first pause, and the longest. */
#define PAUSE_MS       1000
#define PAUSE_MS_MAX   30000
#define INSTANCE_BYTES 33
#define NUMBER_BYTES   24

struct vx_exporter {
    struct vx_exporter_options options;
    struct vx_endpoint endpoint;
    struct vx_resource resource;
    char instance[INSTANCE_BYTES], host[VX_ENDPOINT_HOST_BYTES], pid[NUMBER_BYTES];
    struct vx_record_ring ring;
    _Atomic u64 sent, rejected, failed, dropped;

    pthread_t thread;
    int wake_fd;           /* the loop wakes the thread: a batch waits */
    _Atomic bool is_awake; /* it was woken already */
    int stop_fd;           /* readable once the process stops */
    _Atomic i64 stop_ns;   /* when the thread must have ended; VX_NEVER = not yet */

    /* The thread's. */
    struct vx_span_pack *pack;
    struct vx_collector collector;
    struct vx_backoff pauses;
    i64 next_ns;      /* no POST before: the collector asked for it */
    bool is_failing;  /* the log says so */
    u64 dropped_seen; /* of `dropped`, when a batch last arrived */
};

static void count(_Atomic u64 *counter, u64 more)
{
    atomic_fetch_add_explicit(counter, more, memory_order_relaxed);
}

static u64 counted(const _Atomic u64 *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ------- the loop's side ------- */

static void event_set(int fd)
{
    u64 one = 1;
    /* It fails only at 2^64, where the event is set anyway. */
    VX_ASSERT(write(fd, &one, sizeof one) == sizeof one || errno == EAGAIN);
}

struct vx_record *vx_exporter_begin(struct vx_exporter *exporter, i32 spans)
{
    VX_ON(LOOP);
    struct vx_record *record = vx_record_ring_begin(&exporter->ring);
    if (!record) count(&exporter->dropped, (u64)spans);
    return record;
}

/* One write for each batch: the thread clears is_awake before it counts what waits. */
void vx_exporter_end(struct vx_exporter *exporter)
{
    vx_record_ring_end(&exporter->ring);
    if (vx_record_ring_count(&exporter->ring) < WAKE_RECORDS) return;
    if (!atomic_exchange(&exporter->is_awake, true)) event_set(exporter->wake_fd);
}

void vx_exporter_counts_get(const struct vx_exporter *exporter,
                            struct vx_exporter_counts *counts)
{
    *counts = (struct vx_exporter_counts){.sent = counted(&exporter->sent),
                                          .rejected = counted(&exporter->rejected),
                                          .failed = counted(&exporter->failed),
                                          .dropped = counted(&exporter->dropped)};
}

/* ------- waiting ------- */

static bool exporter_stops(const struct vx_exporter *exporter)
{
    return atomic_load(&exporter->stop_ns) != VX_NEVER;
}

/* Until end_ns, or until the process stops, or, with `batch`, until a batch waits. */
static void exporter_wait(struct vx_exporter *exporter, i64 end_ns, bool batch)
{
    for (;;) {
        i64 now_ns = vx_clock_ns();
        if (now_ns >= end_ns || exporter_stops(exporter)) return;
        struct pollfd fds[] = {{.fd = exporter->stop_fd, .events = POLLIN},
                               {.fd = batch ? exporter->wake_fd : -1, .events = POLLIN}};
        i64 wait_ms = (end_ns - now_ns + VX_NS_PER_MS - 1) / VX_NS_PER_MS;
        (void)poll(fds, VX_COUNT(fds), wait_ms < INT32_MAX ? (int)wait_ms : -1);
        if (!(fds[1].revents & POLLIN)) continue;
        u64 ignored;
        (void)!read(exporter->wake_fd, &ignored, sizeof ignored);
        atomic_store(&exporter->is_awake, false);
        if (vx_record_ring_count(&exporter->ring) >= WAKE_RECORDS) return;
    }
}

/* ------- what the log says ------- */

static void exporter_log(const struct vx_exporter *exporter, bool fails, const char *why)
{
    const struct vx_log_field fields[] = {
        VX_LOG_TEXT("collector", exporter->endpoint.authority),
        VX_LOG_I64("sent", (i64)counted(&exporter->sent)),
        VX_LOG_I64("rejected", (i64)counted(&exporter->rejected)),
        VX_LOG_I64("failed", (i64)counted(&exporter->failed)),
        VX_LOG_I64("dropped", (i64)counted(&exporter->dropped)),
        VX_LOG_TEXT("why", why)};
    vx_log_write(fails ? VX_EVENT_SPANS_FAIL : VX_EVENT_SPANS_FLOW, fields,
                 (int)VX_COUNT(fields) - !fails);
}

static void exporter_fails(struct vx_exporter *exporter, const char *why)
{
    if (!exporter->is_failing) exporter_log(exporter, true, why);
    exporter->is_failing = true;
}

/* A batch has arrived.  Spans that were dropped since the last one are a failure too:
 * the collector is slower than what is sent to it. */
static void exporter_flows(struct vx_exporter *exporter)
{
    u64 dropped = counted(&exporter->dropped);
    bool loses = dropped != exporter->dropped_seen;
    exporter->dropped_seen = dropped;
    if (loses) {
        exporter_fails(exporter, "the collector takes spans more slowly than they come");
        return;
    }
    if (exporter->is_failing) exporter_log(exporter, false, "");
    exporter->is_failing = false;
}

/* ------- one batch ------- */

/* Packs what waits, as much as one POST takes; returns how many spans. */
static i64 exporter_pack(struct vx_exporter *exporter, const u8 **body, size_t *length)
{
    i32 records = vx_record_ring_count(&exporter->ring);
    if (records > VX_SPAN_PACK_RECORDS) records = VX_SPAN_PACK_RECORDS;
    i64 spans = 0;
    for (i32 i = 0; i < records; i++) {
        const struct vx_record *record = vx_record_ring_at(&exporter->ring, i);
        vx_span_pack_add(exporter->pack, record);
        spans += vx_record_spans(record);
    }
    /* The records' clock is monotonic, a collector's is the calendar. */
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    i64 wall_ns = (i64)wall.tv_sec * VX_NS_PER_S + wall.tv_nsec;
    *body = vx_span_pack_end(exporter->pack, wall_ns - vx_clock_ns(), length);
    vx_record_ring_drop(&exporter->ring, records);
    return spans;
}

static void batch_taken(struct vx_exporter *exporter, i64 spans)
{
    const struct vx_answer *answer = &exporter->collector.answer;
    struct vx_why why;
    i64 rejected = vx_span_answer_rejected(answer->body, answer->body_length, &why);
    if (rejected > spans) rejected = spans;
    count(&exporter->rejected, (u64)rejected);
    count(&exporter->sent, (u64)(spans - rejected));
    if (rejected)
        exporter_fails(exporter, why.text[0] ? why.text : "the collector rejected spans");
    else
        exporter_flows(exporter);
}

static void batch_lost(struct vx_exporter *exporter, _Atomic u64 *counter, i64 spans)
{
    count(counter, (u64)spans);
    exporter_fails(exporter, exporter->collector.why.text);
}

/* When the next try may be, after so many that failed. */
static i64 batch_next_ns(const struct vx_exporter *exporter, enum vx_posted posted,
                         i32 failures)
{
    i64 pause_ms = vx_backoff_ms(&exporter->pauses, failures);
    i64 asked_ms = -1;
    if (posted == VX_POSTED_LATER)
        asked_ms =
            vx_retry_after_ms(exporter->collector.answer.retry_after, vx_clock_wall_ms());
    return vx_clock_ns() + (asked_ms > pause_ms ? asked_ms : pause_ms) * VX_NS_PER_MS;
}

static void exporter_send(struct vx_exporter *exporter)
{
    size_t length;
    const u8 *body;
    i64 spans = exporter_pack(exporter, &body, &length);
    i64 end_ns = vx_clock_ns() + VX_EXPORTER_KEEP_NS;
    for (i32 failures = 1;; failures++) {
        exporter_wait(exporter, exporter->next_ns, false);
        enum vx_posted posted =
            vx_collector_post(&exporter->collector, body, length,
                              vx_clock_ns() + exporter->options.timeout_ns);
        if (posted == VX_POSTED_TAKEN) {
            batch_taken(exporter, spans);
            return;
        }
        if (posted == VX_POSTED_REFUSED) {
            batch_lost(exporter, &exporter->rejected, spans);
            return;
        }
        exporter_fails(exporter, exporter->collector.why.text);
        exporter->next_ns = batch_next_ns(exporter, posted, failures);
        /* A process that stops tries each batch once more, and does not pause. */
        if (exporter_stops(exporter) || exporter->next_ns > end_ns) {
            batch_lost(exporter, &exporter->failed, spans);
            return;
        }
    }
}

/* What there was no time for. */
static void exporter_leave(struct vx_exporter *exporter)
{
    i32 left = vx_record_ring_count(&exporter->ring);
    for (i32 i = 0; i < left; i++)
        count(&exporter->failed,
              (u64)vx_record_spans(vx_record_ring_at(&exporter->ring, i)));
    vx_record_ring_drop(&exporter->ring, left);
    if (left) exporter_fails(exporter, "voxeld stopped before all spans were sent");
}

static void exporter_run(void *context)
{
    struct vx_exporter *exporter = context;
    for (;;) {
        bool stops = exporter_stops(exporter); /* read first: then all is in the ring */
        i32 waiting = vx_record_ring_count(&exporter->ring);
        if (stops && (!waiting || vx_clock_ns() >= atomic_load(&exporter->stop_ns)))
            break;
        if (!stops && waiting < WAKE_RECORDS)
            exporter_wait(exporter, vx_clock_ns() + exporter->options.delay_ns, true);
        if (vx_record_ring_count(&exporter->ring)) exporter_send(exporter);
    }
    exporter_leave(exporter);
    vx_collector_close(&exporter->collector);
}

/* ------- life ------- */

/* What every span's sender says of itself, unless the setting says otherwise. */
static void exporter_describe(struct vx_exporter *exporter)
{
    u8 random[(INSTANCE_BYTES - 1) / 2] = {0};
    (void)!getrandom(random, sizeof random, GRND_NONBLOCK);
    for (size_t i = 0; i < sizeof random; i++)
        (void)snprintf(exporter->instance + 2 * i, 3, "%02x", random[i]);
    if (gethostname(exporter->host, sizeof exporter->host - 1) < 0) exporter->host[0] = 0;
    (void)snprintf(exporter->pid, sizeof exporter->pid, "%d", (int)getpid());
    vx_resource_set(&exporter->resource, "service.name", "voxeld");
    vx_resource_set(&exporter->resource, "service.version", VX_VERSION);
    vx_resource_set(&exporter->resource, "service.instance.id", exporter->instance);
    vx_resource_set(&exporter->resource, "host.name", exporter->host);
    vx_resource_set(&exporter->resource, "process.pid", exporter->pid);
}

static vx_status exporter_read(struct vx_exporter *exporter, struct vx_why *why)
{
    VX_TRY(vx_endpoint_parse(exporter->options.endpoint, why, &exporter->endpoint));
    exporter_describe(exporter);
    return vx_resource_parse(&exporter->resource, exporter->options.resource, why);
}

vx_status vx_exporter_expect(const struct vx_exporter_options *options,
                             struct vx_why *why)
{
    struct vx_exporter *exporter = vx_alloc_aligned(sizeof *exporter);
    VX_ENSURE(exporter, RESOURCE_EXHAUSTED, "no memory to send spans");
    memset(exporter, 0, sizeof *exporter);
    exporter->options = *options;
    vx_status status = exporter_read(exporter, why);
    vx_free(exporter);
    return status;
}

static vx_status exporter_open(struct vx_exporter *exporter, struct vx_why *why)
{
    VX_TRY(exporter_read(exporter, why));
    VX_TRY(vx_record_ring_open(&exporter->ring));
    VX_TRY(vx_span_pack_open(&exporter->resource, &exporter->pack));
    exporter->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    exporter->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    VX_ENSURE(exporter->wake_fd >= 0 && exporter->stop_fd >= 0, RESOURCE_EXHAUSTED,
              "the system gave no event for the thread that sends spans");
    vx_collector_open(&exporter->collector, &exporter->endpoint, exporter->stop_fd,
                      &exporter->stop_ns);
    return vx_thread_open(&exporter->thread, VX_ROLE_TRACE, exporter_run, exporter);
}

static void exporter_release(struct vx_exporter **exporter)
{
    if ((*exporter)->wake_fd >= 0) close((*exporter)->wake_fd);
    if ((*exporter)->stop_fd >= 0) close((*exporter)->stop_fd);
    vx_span_pack_close(&(*exporter)->pack);
    vx_record_ring_close(&(*exporter)->ring);
    vx_free(*exporter);
    *exporter = NULL;
}

vx_status vx_exporter_open(const struct vx_exporter_options *options, struct vx_why *why,
                           struct vx_exporter **exporter)
{
    *exporter = vx_alloc_aligned(sizeof **exporter);
    VX_ENSURE(*exporter, RESOURCE_EXHAUSTED, "no memory to send spans");
    memset(*exporter, 0, sizeof **exporter);
    (*exporter)->options = *options;
    (*exporter)->wake_fd = (*exporter)->stop_fd = -1;
    atomic_init(&(*exporter)->stop_ns, VX_NEVER);
    (*exporter)->pauses =
        (struct vx_backoff){.first_ms = options->pause_ms ? options->pause_ms : PAUSE_MS,
                            .most_ms = PAUSE_MS_MAX};
    vx_status st = exporter_open(*exporter, why);
    if (st.fault) exporter_release(exporter);
    return st;
}

void vx_exporter_close(struct vx_exporter **exporter, i64 limit_ns)
{
    if (!*exporter) return;
    atomic_store(&(*exporter)->stop_ns, vx_clock_ns() + limit_ns);
    event_set((*exporter)->stop_fd);
    /* Only the look-up of a name has no deadline of ours.  A thread that hangs there is
     * left with its memory: the process ends anyway. */
    if (vx_thread_join_within((*exporter)->thread, limit_ns + VX_NS_PER_S)) {
        exporter_release(exporter);
        return;
    }
    exporter_log(
        *exporter, true,
        "voxeld stopped while the name of the collector was being looked up: what "
        "was not sent is lost");
    *exporter = NULL;
}
