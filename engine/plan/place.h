/* place - where the tensors of a plan lie: beside each other, or in the rows of a concat.
 *
 * A concat whose inputs are written where its rows have them copies nothing.  Such an input is
 * a part: its rows begin at a column of the concat's rows, and are as far apart as those
 * (vx_plan_stride).  The concat's tensor is then alive from the first part's launch on, and
 * until the last read of a part.
 *
 * An input is a part where all of this holds; else it is copied, as before:
 *   writer    its launch writes rows of any stride: place_writes (which do depends on the
 *             device: VX_PLAN_PARTS_)
 *   readers   all that read it do, too: place_reads; on the CPU neither outputs nor sets by
 *             logits do
 *   columns   it begins at a multiple of the channels' unit, and ends at one, or is the last,
 *             whose padding is the concat's
 *   once      it is no part of another concat, and no other input of this one
 *   memory    the set needs no more memory than with a copy: an early input of a late concat
 *             would keep a wide tensor alive for long
 *
 *   (launches, lifetimes and sets of tensors are there)
 *   vx_plan_place(plan);
 *
 * Owner    writes parts, channels and offsets of the plan given.
 * Thread   any; pure.
 * Limits   those of memory.h.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_PLAN_PLACE_H
#define VX_ENGINE_PLAN_PLACE_H

#include "engine/plan/plan.h"

void vx_plan_place(struct vx_plan *plan);

#endif
