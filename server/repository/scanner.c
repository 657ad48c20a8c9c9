/* SPDX-License-Identifier: Apache-2.0 */
#include "server/repository/scanner.h"

#include "engine/base/process/check.h"

void vx_scanner_init(struct vx_scanner *scanner, const struct vx_scanner_options *options)
{
    *scanner = (struct vx_scanner){.options = *options};
}

static void scanner_on_work(uv_work_t *work)
{
    struct vx_scanner *scanner = VX_CONTAINER(work, struct vx_scanner, work);
    vx_repository_scan(scanner->options.path, &scanner->listing);
}

static void scanner_begin(struct vx_scanner *scanner, bool quiet);

static void scanner_on_done(uv_work_t *work, int status)
{
    struct vx_scanner *scanner = VX_CONTAINER(work, struct vx_scanner, work);
    scanner->running = false;
    if (status == UV_ECANCELED) return;
    scanner->listing.quiet = scanner->quiet;
    bool again = scanner->again;
    scanner->again = false;
    scanner->options.on_listing(scanner->options.context, &scanner->listing);
    if (again) scanner_begin(scanner, scanner->again_quiet);
}

static void scanner_begin(struct vx_scanner *scanner, bool quiet)
{
    if (scanner->running) {
        scanner->again_quiet = quiet && (scanner->again_quiet || !scanner->again);
        scanner->again = true;
        return;
    }
    scanner->running = true;
    scanner->quiet = quiet;
    VX_ASSERT(!uv_queue_work(scanner->options.loop, &scanner->work, scanner_on_work,
                             scanner_on_done));
}

void vx_scanner_start(struct vx_scanner *scanner)
{
    scanner_begin(scanner, false);
}

void vx_scanner_look(struct vx_scanner *scanner)
{
    scanner_begin(scanner, true);
}
