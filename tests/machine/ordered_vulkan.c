// A libvulkan.so.1 in front of the real one (REAL): vkSignalSemaphore never goes backwards, and
// vkWaitSemaphores for any of several sleeps.
//
// IREE 3.13's queue takes the next value of its wakeup semaphore and signals it in two steps from
// two threads; where they overtake each other, the smaller value comes last, which Vulkan forbids
// and Mesa answers by declaring the device lost (docs/hardware.md). The greater value has woken
// whoever waits, so the smaller one is left out.
//
// IREE's two threads of a device wait for one of several semaphores as long as the device is open.
// Mesa's software driver looks at them in turn without a pause: a process with a device kept two
// processors busy, and the default run of these tests took twice as long.

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);
typedef struct {
  int32_t type;
  const void *next;
  uint64_t semaphore;
  uint64_t value;
} SignalInfo;

typedef struct {
  int32_t type;
  const void *next;
  uint32_t flags;
  uint32_t count;
  const uint64_t *semaphores;
  const uint64_t *values;
} WaitInfo;

enum { TIMEOUT = 2, WAIT_ANY = 1 };  // VK_TIMEOUT, VK_SEMAPHORE_WAIT_ANY_BIT

unsigned long left_out;  // signals that would have gone backwards

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static Lookup of_instance, of_device;
static int32_t (*real_signal)(void *, const SignalInfo *);
static int32_t (*real_value)(void *, uint64_t, uint64_t *);
static int32_t (*real_wait)(void *, const WaitInfo *, uint64_t);

static int32_t signal_in_order(void *device, const SignalInfo *info) {
  uint64_t value = 0;
  pthread_mutex_lock(&order);
  int32_t result = real_value(device, info->semaphore, &value);
  if (result == 0 && info->value <= value) {
    ++left_out;
  } else if (result == 0) {
    result = real_signal(device, info);
  }
  pthread_mutex_unlock(&order);
  return result;
}

static uint64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Looks, and sleeps between two looks, from 10 us to 1 ms.
static int32_t wait_asleep(void *device, const WaitInfo *info, uint64_t timeout) {
  if (!(info->flags & WAIT_ANY) || timeout == 0) return real_wait(device, info, timeout);
  const uint64_t begin = now();
  struct timespec pause = {0, 10000};
  for (;;) {
    int32_t result = real_wait(device, info, 0);
    if (result != TIMEOUT || now() - begin >= timeout) return result;
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 1000000) pause.tv_nsec *= 2;
  }
}

static Function ours(Lookup lookup, void *owner, const char *name, Function found) {
  if (found == NULL) return found;
  if (strcmp(name, "vkWaitSemaphores") == 0) {
    real_wait = (int32_t(*)(void *, const WaitInfo *, uint64_t))found;
    return (Function)wait_asleep;
  }
  if (strcmp(name, "vkSignalSemaphore") != 0) return found;
  real_signal = (int32_t(*)(void *, const SignalInfo *))found;
  real_value = (int32_t(*)(void *, uint64_t, uint64_t *))lookup(owner, "vkGetSemaphoreCounterValue");
  return real_value == NULL ? found : (Function)signal_in_order;
}

static Function device_function(void *device, const char *name) {
  return ours(of_device, device, name, of_device(device, name));
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
  if (of_instance == NULL) {
    void *real = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    if (real == NULL) return NULL;
    of_instance = (Lookup)dlsym(real, "vkGetInstanceProcAddr");
    if (of_instance == NULL) return NULL;
  }
  Function found = of_instance(instance, name);
  if (found != NULL && strcmp(name, "vkGetDeviceProcAddr") == 0) {
    of_device = (Lookup)found;
    return (Function)device_function;
  }
  return ours(of_instance, instance, name, found);
}
