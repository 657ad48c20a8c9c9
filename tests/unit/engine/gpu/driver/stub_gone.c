/* stub_gone - a library that stub_hip_half needs and the loader does not find.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
int stub_gone(void);

int stub_gone(void)
{
    return 0;
}
