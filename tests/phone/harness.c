/* Calls one kernel of a kernel library from C, so that the library can be tried under a C library that has no Python here.
 *
 * In:  harness LIBRARY THREADS IMAGE OUT WORKSPACE_BYTES KERNEL OFFSET:CODE:BITS:AxBxC ...
 *      IMAGE holds all tensors, each at a multiple of 64; CODE and BITS are DLPack's.
 * Out: the image after the call, written to OUT; exit code 0, or 1 with the reason on stderr.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_ARGUMENTS = 32, MAX_DIMENSIONS = 8, DLTENSOR_POINTER = 7 };

typedef struct {
  void *data;
  int32_t device_type, device_id, ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} Tensor;
typedef struct {
  int32_t type_index, padding;
  uint64_t value;
} Any;

static void *library;
static void *find(const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) {
    fprintf(stderr, "%s: %s\n", name, dlerror());
    exit(1);
  }
  return symbol;
}

typedef struct {
  int id, epoch;
} Worker;
static void *work(void *argument) {
  Worker *worker = argument;
  ((void (*)(int, int))find("mft_worker_loop"))(worker->id, worker->epoch);
  return 0;
}

int main(int count, char **words) {
  if (count < 8) return fprintf(stderr, "too few arguments\n"), 1;
  int threads = atoi(words[2]);
  size_t workspace = strtoull(words[5], 0, 10);
  library = dlopen(words[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;

  FILE *image = fopen(words[3], "rb");
  fseek(image, 0, SEEK_END);
  size_t n_bytes = ftell(image);
  rewind(image);
  char *memory = aligned_alloc(64, (n_bytes + 63) / 64 * 64);
  if (fread(memory, 1, n_bytes, image) != n_bytes) return fprintf(stderr, "the image is too short\n"), 1;

  static Tensor tensors[MAX_ARGUMENTS];
  static int64_t shapes[MAX_ARGUMENTS][MAX_DIMENSIONS];
  static Any arguments[MAX_ARGUMENTS];
  int n = 0;
  for (int i = 7; i < count; i++, n++) {
    char *at = words[i];
    size_t offset = strtoull(at, &at, 10);
    int code = strtol(at + 1, &at, 10), bits = strtol(at + 1, &at, 10), ndim = 0;
    while (*at) shapes[n][ndim++] = strtoll(at + 1, &at, 10);
    tensors[n] = (Tensor){memory + offset, 1, 0, ndim, code, bits, 1, shapes[n], 0, 0};
    arguments[n] = (Any){DLTENSOR_POINTER, 0, (uint64_t)(uintptr_t)&tensors[n]};
  }

  if (!((int (*)(void))find("mft_pool_claim"))()) return fprintf(stderr, "the pool is taken\n"), 1;
  static pthread_t ids[64];
  static Worker workers[64];
  int epoch = ((int (*)(void))find("mft_pool_epoch"))();
  for (int i = 0; i < threads; i++) {
    size_t size = (workspace + 64) / 64 * 64;
    ((int (*)(int, void *, unsigned long))find("mft_workspace"))(i, aligned_alloc(64, size), size);
  }
  ((void (*)(int))find("mft_workspace_owner"))(0);
  for (int i = 1; i < threads; i++) {
    workers[i] = (Worker){i, epoch};
    pthread_create(&ids[i], 0, work, &workers[i]);
  }
  ((void (*)(int))find("mft_pool_width"))(threads);

  char name[256];
  snprintf(name, sizeof name, "__tvm_ffi_%s", words[6]);
  Any result = {0};
  int failed = ((int (*)(void *, Any *, int32_t, Any *))find(name))(0, arguments, n, &result);
  if (failed) fprintf(stderr, "%s\n", ((const char *(*)(void))find("mft_last_error"))());
  ((void (*)(void))find("mft_pool_stop"))();
  for (int i = 1; i < threads; i++) pthread_join(ids[i], 0);
  if (failed) return 1;

  FILE *out = fopen(words[4], "wb");
  return fwrite(memory, 1, n_bytes, out) != n_bytes || fclose(out);
}
