/* trials - how often a random test tries: `all_` in release, which has the breadth, and `few_` under a sanitizer, which
 * looks at what each trial touches and needs a tenfold of the time for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_SUPPORT_TRIALS_H
#define VX_TESTS_SUPPORT_TRIALS_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VX_TRIALS(all_, few_) (few_)
#else
#define VX_TRIALS(all_, few_) (all_)
#endif

#endif
