/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/gpu/fake/fake.h"

#include "engine/base/process/alloc.h"
#include "engine/base/process/check.h"
#include "engine/gpu/driver/limits.h"
#include "engine/gpu/fake/fake_parts.h"
#include "engine/gpu/jit/jit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake {
    pthread_mutex_t lock;
    struct vx_fake_settings settings;
    i64 calls, launches, early, urgent;
    bool lost;
    int contexts; /* how often the one context was opened */
    size_t used;
    struct memory *memories;
    struct memory *hosts;          /* page-locked, of the host */
    struct vx_fake_object objects; /* only the head of the list */
};
static struct fake fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- for tests --- */

void vx_fake_set(const struct vx_fake_settings *settings)
{
    pthread_mutex_lock(&fake.lock);
    fake.settings = *settings;
    fake.calls = fake.launches = fake.early = fake.urgent = 0;
    fake.lost = false;
    pthread_mutex_unlock(&fake.lock);
}

i64 vx_fake_calls(void)
{
    pthread_mutex_lock(&fake.lock);
    i64 calls = fake.calls;
    pthread_mutex_unlock(&fake.lock);
    return calls;
}

i64 vx_fake_launches(void)
{
    pthread_mutex_lock(&fake.lock);
    i64 launches = fake.launches;
    pthread_mutex_unlock(&fake.lock);
    return launches;
}

i64 vx_fake_launches_early(void)
{
    pthread_mutex_lock(&fake.lock);
    i64 early = fake.early;
    pthread_mutex_unlock(&fake.lock);
    return early;
}

i64 vx_fake_launches_urgent(void)
{
    pthread_mutex_lock(&fake.lock);
    i64 urgent = fake.urgent;
    pthread_mutex_unlock(&fake.lock);
    return urgent;
}

i32 vx_fake_event_polls(void)
{
    pthread_mutex_lock(&fake.lock);
    i32 polls = fake.settings.event_polls;
    pthread_mutex_unlock(&fake.lock);
    return polls;
}

void vx_fake_on_pin(void)
{
    pthread_mutex_lock(&fake.lock);
    void (*told)(void) = fake.settings.on_pin;
    pthread_mutex_unlock(&fake.lock);
    if (told) told();
}

size_t vx_fake_memory_total(void)
{
    size_t bytes = fake.settings.memory_bytes;
    return bytes ? bytes : (size_t)vx_arch_caps("fake")->memory_bytes;
}

static int step_locked(void)
{
    if (fake.lost) return VX_DRIVER_ILLEGAL_ADDRESS;
    i64 first = fake.settings.fail_call, count = fake.settings.fail_count;
    fake.calls++;
    if (!first || fake.calls < first || fake.calls >= first + (count ? count : 1))
        return 0;
    fake.lost = vx_driver_sticky(fake.settings.fail_code);
    return fake.settings.fail_code;
}

int vx_fake_step(void)
{
    pthread_mutex_lock(&fake.lock);
    int code = step_locked();
    pthread_mutex_unlock(&fake.lock);
    return code;
}

/* As on a device, the launch of a kernel that fails succeeds; later calls fail. */
int vx_fake_step_launch(bool early, bool urgent, bool *run)
{
    pthread_mutex_lock(&fake.lock);
    int code = step_locked();
    if (!code) fake.launches++;
    if (!code) fake.early += early;
    if (!code) fake.urgent += urgent;
    if (!code && fake.settings.lose_launch == fake.launches) fake.lost = true;
    *run = !code && !fake.lost;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

/* --- objects --- */

void *vx_fake_object_open(enum vx_fake_kind kind, size_t bytes)
{
    struct vx_fake_object *made = vx_alloc_zero(bytes);
    if (!made) return NULL;
    pthread_mutex_lock(&fake.lock);
    made->kind = kind;
    made->previous = &fake.objects;
    made->next = fake.objects.next;
    if (made->next) made->next->previous = made;
    fake.objects.next = made;
    pthread_mutex_unlock(&fake.lock);
    return made;
}

void vx_fake_object_close(struct vx_fake_object *object)
{
    pthread_mutex_lock(&fake.lock);
    object->previous->next = object->next;
    if (object->next) object->next->previous = object->previous;
    pthread_mutex_unlock(&fake.lock);
    if (object->kind == VX_FAKE_MODULE) vx_free(object->inside);
    object->kind = 0;
    vx_free(object);
}

void vx_fake_each(enum vx_fake_kind kind, void (*each)(struct vx_fake_object *object))
{
    pthread_mutex_lock(&fake.lock);
    for (struct vx_fake_object *it = fake.objects.next; it; it = it->next)
        if (it->kind == kind) each(it);
    pthread_mutex_unlock(&fake.lock);
}

bool vx_fake_is(const void *object, enum vx_fake_kind kind)
{
    return object && ((const struct vx_fake_object *)object)->kind == kind;
}

/* --- the device --- */

static int fake_init(unsigned flags)
{
    return flags ? VX_DRIVER_INVALID_VALUE : vx_fake_step();
}

static int fake_version(int *version)
{
    *version = 0;
    return vx_fake_step();
}

static int fake_device_count(int *count)
{
    *count = 1;
    return vx_fake_step();
}

static int fake_device_get(int *device, int index)
{
    *device = index;
    return index ? VX_DRIVER_INVALID_DEVICE : vx_fake_step();
}

static int fake_device_name(char *name, int bytes, int device)
{
    (void)device;
    (void)snprintf(name, (size_t)bytes, "fake GPU");
    return vx_fake_step();
}

/* Not counted as a call and never fails: no caller depends on the result. */
static int fake_device_uuid(void *id, int device)
{
    memset(id, 0xfa, 16);
    (void)device;
    return 0;
}

/* An address that no bus has, so that the NUMA node is not known. */
static int fake_device_pci(char *bus, int bytes, int device)
{
    (void)device;
    (void)snprintf(bus, (size_t)bytes, "FFFFFFFF:FF:1F.7");
    return vx_fake_step();
}

static int fake_device_attribute(int *value, int attribute, int device)
{
    const struct vx_caps *caps = vx_arch_caps("fake");
    const int values[VX_ATTRIBUTES_COUNT] = {
        [VX_ATTRIBUTE_PROCESSORS] =
            fake.settings.processors ? fake.settings.processors : caps->processors,
        [VX_ATTRIBUTE_MAJOR] = caps->arch / 10,
        [VX_ATTRIBUTE_MINOR] = caps->arch % 10,
        [VX_ATTRIBUTE_SHARED_BLOCK] = caps->shared_block,
        [VX_ATTRIBUTE_SHARED_PROCESSOR] = caps->shared_processor,
        [VX_ATTRIBUTE_CLOCK_KHZ] = caps->clock_mhz * 1000,
        [VX_ATTRIBUTE_CACHE_BYTES] = (int)caps->cache_bytes,
        [VX_ATTRIBUTE_WAVE] = 32,
    };
    (void)device;
    *value = values[attribute];
    return vx_fake_step();
}

static int fake_device_memory(size_t *bytes, int device)
{
    (void)device;
    *bytes = vx_fake_memory_total();
    return vx_fake_step();
}

static int fake_open(const struct vx_driver *driver, int device, void **context)
{
    (void)driver;
    (void)device;
    *context = &fake;
    int code = vx_fake_step();
    pthread_mutex_lock(&fake.lock);
    fake.contexts += !code;
    pthread_mutex_unlock(&fake.lock);
    return code;
}

static int fake_use(const struct vx_driver *driver, int device, void *context)
{
    (void)driver;
    (void)device;
    return context == &fake ? vx_fake_step() : VX_DRIVER_INVALID_HANDLE;
}

static void fake_close(const struct vx_driver *driver, int device)
{
    (void)driver;
    (void)device;
    VX_ASSERT(fake.contexts > 0);
    if (--fake.contexts) return;
    vx_fake_queue_close();
    while (fake.objects.next) vx_fake_object_close(fake.objects.next);
    vx_fake_memory_close();
    vx_fake_foreign_close();
}

static vx_status fake_identify(const struct vx_driver *driver, int device, const int *got,
                               struct vx_why *why, struct vx_driver_arch *arch)
{
    (void)driver;
    (void)device;
    (void)why;
    *arch = (struct vx_driver_arch){"fake", got[VX_ATTRIBUTE_MAJOR] * 10 +
                                                got[VX_ATTRIBUTE_MINOR]};
    return VX_OK;
}

static int fake_error_text(int code, const char **text)
{
    switch (code) {
    case VX_DRIVER_INVALID_VALUE: *text = "invalid argument"; break;
    case VX_DRIVER_OUT_OF_MEMORY: *text = "out of memory"; break;
    case VX_DRIVER_NOT_FOUND: *text = "named symbol not found"; break;
    case VX_DRIVER_ILLEGAL_ADDRESS:
        *text = "an illegal memory access was encountered";
        break;
    default: *text = "an error of the fake"; break;
    }
    return 0;
}

/* --- modules: an image is the text that jit_compile.c made --- */

static int fake_module_load(void **module, const void *image)
{
    int code = vx_fake_step();
    if (code) return code;
    if (strncmp(image, "fake kernel\n", 12) != 0) return VX_DRIVER_INVALID_IMAGE;
    size_t bytes = strlen(image) + 1;
    struct vx_fake_object *made = vx_fake_object_open(VX_FAKE_MODULE, sizeof *made);
    char *text = vx_alloc(bytes);
    VX_ASSERT(made);
    VX_ASSERT(text);
    memcpy(text, image, bytes);
    made->inside = text;
    *module = made;
    return 0;
}

/* Closes the functions of the module too. */
static int fake_module_unload(void *module)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(module, VX_FAKE_MODULE)) return VX_DRIVER_INVALID_HANDLE;
    vx_fake_queue_drain();
    for (struct vx_fake_object *it = fake.objects.next; it;) {
        struct vx_fake_object *next = it->next;
        if (vx_fake_is(it, VX_FAKE_FUNCTION) &&
            ((struct vx_fake_function *)it)->module == module)
            vx_fake_object_close(it);
        it = next;
    }
    vx_fake_object_close(module);
    return 0;
}

/* The text behind `word` in a module's image; it is not cut at the end of the line. */
static const char *image_field(const struct vx_fake_object *module, const char *word)
{
    const char *at = strstr(module->inside, word);
    return at ? at + strlen(word) : "";
}

static int fake_function_get(void **function, void *module, const char *name)
{
    int code = vx_fake_step();
    if (code) return code;
    if (!vx_fake_is(module, VX_FAKE_MODULE)) return VX_DRIVER_INVALID_HANDLE;
    const struct vx_kernel_spec *spec =
        fake.settings.find ? fake.settings.find(name) : vx_kernel_find(name);
    const char *source = image_field(module, "\nsource ");
    if (!spec || strncmp(source, spec->source, strlen(spec->source)) != 0)
        return VX_DRIVER_NOT_FOUND;
    struct vx_fake_function *made = vx_fake_object_open(VX_FAKE_FUNCTION, sizeof *made);
    VX_ASSERT(made);
    made->module = module;
    made->spec = spec;
    made->type = (enum vx_number)strtol(image_field(module, "\ntype "), NULL, 10);
    made->shared = VX_GPU_SHARED_FREE;
    *function = made;
    return 0;
}

static int fake_shared_allow(const struct vx_driver *driver, void *function, int bytes)
{
    (void)driver;
    int code = vx_fake_step();
    if (code) return code;
    if (bytes > vx_arch_caps("fake")->shared_block) return VX_DRIVER_INVALID_VALUE;
    ((struct vx_fake_function *)function)->shared = bytes;
    return 0;
}

void vx_driver_fake(struct vx_driver *driver)
{
    static const i32 attributes[VX_ATTRIBUTES_COUNT] = {0, 1, 2, 3, 4, 5, 6, 7};
    driver->word = "fake";
    driver->attributes = attributes;
    driver->init = fake_init;
    driver->version = fake_version;
    driver->device_count = fake_device_count;
    driver->device_get = fake_device_get;
    driver->device_name = fake_device_name;
    driver->device_attribute = fake_device_attribute;
    driver->device_uuid = fake_device_uuid;
    driver->device_pci = fake_device_pci;
    driver->device_memory = fake_device_memory;
    driver->module_load = fake_module_load;
    driver->module_unload = fake_module_unload;
    driver->function_get = fake_function_get;
    driver->error_text = fake_error_text;
    driver->open = fake_open;
    driver->use = fake_use;
    driver->close = fake_close;
    driver->shared_allow = fake_shared_allow;
    driver->identify = fake_identify;
    vx_driver_fake_memory(driver);
    vx_driver_fake_foreign(driver);
    vx_driver_fake_queue(driver);
}
