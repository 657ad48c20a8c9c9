/* metrics_forms - includes metrics.def, with only the forms that the includer defines.
 *
 *   #define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_) VX_HISTOGRAM_##id_,
 *   #include "server/metrics/metrics_forms.h"
 *
 * The rows of all other forms expand to nothing, and all forms are undefined afterwards.
 *
 * No include guard: it is meant to be included many times.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_METRIC_SERVER
#define VX_METRIC_SERVER(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_METHOD
#define VX_METRIC_METHOD(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_CODE
#define VX_METRIC_CODE(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_TOKEN
#define VX_METRIC_TOKEN(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_MODEL
#define VX_METRIC_MODEL(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_WORKER
#define VX_METRIC_WORKER(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_METRIC_GPU
#define VX_METRIC_GPU(name_, type_, labels_, value_, help_)
#endif
#ifndef VX_HISTOGRAM
#define VX_HISTOGRAM(id_, name_, unit_, bounds_, help_)
#endif
#include "server/metrics/metrics.def"
#undef VX_METRIC_SERVER
#undef VX_METRIC_METHOD
#undef VX_METRIC_CODE
#undef VX_METRIC_TOKEN
#undef VX_METRIC_MODEL
#undef VX_METRIC_WORKER
#undef VX_METRIC_GPU
#undef VX_HISTOGRAM
