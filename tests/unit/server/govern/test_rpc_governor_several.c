/* Connections with several messages each at once.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "engine/base/process/clock.h"
#include "server/govern/rpc_govern_private.h"
#include "server/rpc/rpc_private.h"
#include "tests/unit/server/govern/governor_rig.h"
#include "tests/unit/server/rpc/rpc_raw.h"

#include <check.h>
#include <stdlib.h>

enum { PIECE = 16384, BEGUN = 6 };
#define STEP_NS (VX_NS_PER_S / 100)

/* One client whose connections have several messages each at once, together more than the room and
 * all that turns may add: they end, one connection after the other, and none is closed. */
START_TEST(several_messages_of_each_connection_end)
{
    enum { CONNECTIONS = 6, CALLS = 4, LENGTH = 110000 };
    i32 ones[CONNECTIONS], finished = 0;
    size_t left[CONNECTIONS][CALLS];
    i64 now_ns = vx_clock_ns();
    rig_open(0);
    for (i32 k = 0; k < CONNECTIONS; k++) {
        ones[k] = rig_connect();
        rig_greet(ones[k]);
        vx_rpc_govern_share(rig_place(ones[k]), VX_RPC_SHARE_AWAITED, CALLS);
        for (u32 id = 1; id < 2 * CALLS; id += 2) {
            rig_call(ones[k], id);
            ck_assert(raw_message(rig_theirs[ones[k]], id, LENGTH, BEGUN));
            left[k][id / 2] = LENGTH + VX_H2_PREFIX_BYTES - BEGUN;
        }
    }
    for (i32 i = 0; i < 600 && finished < CONNECTIONS; i++) {
        finished = 0;
        for (i32 k = 0; k < CONNECTIONS; k++) {
            rig_read_all(ones[k]);
            for (u32 id = 1; !rig_unread(ones[k]) && id < 2 * CALLS; id += 2) {
                size_t *rest = &left[k][id / 2], piece = *rest < PIECE ? *rest : PIECE;
                if (piece) ck_assert(raw_rest(rig_theirs[ones[k]], id, piece));
                *rest -= piece;
                rig_read_all(ones[k]);
            }
            ck_assert(!rig_is_closed(ones[k]));
            finished +=
                vx_rpc_governor_row(rig_governor, ones[k])->meter.finished == CALLS;
        }
        now_ns += STEP_NS;
        vx_rpc_governor_turn(rig_governor, now_ns);
    }
    ck_assert_int_eq(finished, CONNECTIONS);
    rig_close();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rpc_governor_several");
    TCase *tests = tcase_create("rpc_governor_several");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, several_messages_of_each_connection_end);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
