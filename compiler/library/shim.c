/* What TVM's generated code needs, with no libc: threads, workspaces, an error text, memcpy and memset.
 *
 * In:  kernels that refer to __TVMBackendParallelLaunch, __TVMBackendAllocWorkspace, __TVMBackendFreeWorkspace and
 *      TVMFFIErrorSetRaisedFromCStrParts; worker threads that the caller made with whatever thread library it has.
 * Out: mft_* functions for the runtime.
 * Nothing here may call a library or use thread-local storage: one file has to load under glibc, musl and Android's bionic.
 */
typedef int (*Lambda)(int task, void *env, void *data);
struct Environment {
  void *sync;
  int tasks;
};

enum { MAX_THREADS = 64, ERROR_BYTES = 512, SPINS = 2000, WIDTH_BITS = 8, EVERYBODY = 1 << 30 };
/* A loop is cut into more pieces than there are threads, so that a slow or interrupted core takes fewer of them. */
enum { PIECES_PER_THREAD = 4 };
enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 };

static long futex(int *word, int operation, int value) {
#if defined(__x86_64__)
  long result;
  register long timeout __asm__("r10") = 0;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(202), "D"(word), "S"(operation), "d"(value), "r"(timeout)
                   : "rcx", "r11", "memory");
  return result;
#elif defined(__aarch64__)
  register long number __asm__("x8") = 98;
  register long x0 __asm__("x0") = (long)word;
  register long x1 __asm__("x1") = operation;
  register long x2 __asm__("x2") = value;
  register long timeout __asm__("x3") = 0;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(number), "r"(x1), "r"(x2), "r"(timeout) : "memory");
  return x0;
#else
#error "no futex for this architecture"
#endif
}

static void pause_a_moment(void) {
#if defined(__x86_64__)
  __asm__ volatile("pause");
#else
  __asm__ volatile("yield");
#endif
}

/* ---- The pool ------------------------------------------------------------------------------------------------------------
 * `epoch` holds a counter and, in its low bits, the width of that launch. A worker that wakes late takes the width from the
 * very word that woke it, so it can never count itself into a launch that did not wait for it. */
static struct {
  int epoch, left, next, failed, width, claimed, stopping, tasks;
  Lambda lambda;
  void *data;
} pool = {.width = 1};

static void run_tasks(void) {
  struct Environment env = {0, pool.tasks};
  int task;
  while ((task = __atomic_fetch_add(&pool.next, 1, __ATOMIC_ACQ_REL)) < pool.tasks)
    if (pool.lambda(task, &env, pool.data)) __atomic_store_n(&pool.failed, 1, __ATOMIC_RELEASE);
}

static void advance_epoch(int width) {
  int before = __atomic_load_n(&pool.epoch, __ATOMIC_RELAXED);
  int counter = (int)(((unsigned)before >> WIDTH_BITS) + 1u);
  __atomic_store_n(&pool.epoch, (int)((unsigned)counter << WIDTH_BITS) | width, __ATOMIC_RELEASE);
  futex(&pool.epoch, FUTEX_WAKE_PRIVATE, EVERYBODY);
}

static int launch(Lambda lambda, void *data, int tasks) {
  int width = pool.width, left, spins = 0;
  pool.lambda = lambda;
  pool.data = data;
  pool.tasks = tasks ? tasks : width > 1 ? width * PIECES_PER_THREAD : 1;
  pool.failed = 0;
  __atomic_store_n(&pool.left, width - 1, __ATOMIC_RELEASE);
  __atomic_store_n(&pool.next, 0, __ATOMIC_RELEASE);
  if (width > 1) advance_epoch(width);
  run_tasks();
  while ((left = __atomic_load_n(&pool.left, __ATOMIC_ACQUIRE)) > 0) {
    if (++spins < SPINS)
      pause_a_moment();
    else
      futex(&pool.left, FUTEX_WAIT_PRIVATE, left);
  }
  return pool.failed ? -1 : 0;
}
int (*__TVMBackendParallelLaunch)(Lambda, void *, int) = launch;

/* 1 when this process may use the pool, 0 when somebody already does. */
int mft_pool_claim(void) {
  int expected = 0;
  if (!__atomic_compare_exchange_n(&pool.claimed, &expected, 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return 0;
  pool.width = 1;
  pool.stopping = 0;
  return 1;
}

/* Threads that compute from the next call on, the caller included; workers with a higher id stay asleep. */
void mft_pool_width(int width) { pool.width = width; }

/* The epoch to hand to mft_worker_loop, read before the worker's thread is made. */
int mft_pool_epoch(void) { return __atomic_load_n(&pool.epoch, __ATOMIC_ACQUIRE); }

void mft_workspace_owner(int id);

/* Blocks the calling thread until mft_pool_stop(). `id` counts from 1: the thread that calls kernels is 0. */
void mft_worker_loop(int id, int seen) {
  mft_workspace_owner(id);
  for (;;) {
    int epoch, spins = 0;
    while ((epoch = __atomic_load_n(&pool.epoch, __ATOMIC_ACQUIRE)) == seen) {
      if (++spins < SPINS)
        pause_a_moment();
      else
        futex(&pool.epoch, FUTEX_WAIT_PRIVATE, seen);
    }
    seen = epoch;
    if (__atomic_load_n(&pool.stopping, __ATOMIC_ACQUIRE)) return;
    if (id >= (epoch & ((1 << WIDTH_BITS) - 1))) continue;
    run_tasks();
    if (__atomic_sub_fetch(&pool.left, 1, __ATOMIC_ACQ_REL) == 0) futex(&pool.left, FUTEX_WAKE_PRIVATE, 1);
  }
}

/* Lets every worker return; the pool may be claimed again when they have. */
void mft_pool_stop(void) {
  __atomic_store_n(&pool.stopping, 1, __ATOMIC_RELEASE);
  advance_epoch(0);
}

void mft_pool_release(void) { __atomic_store_n(&pool.claimed, 0, __ATOMIC_RELEASE); }

/* ---- Workspaces: one stack per thread, in memory that the caller hands over ------------------------------------------------
 * A thread is known by its thread pointer register. TVM takes a workspace for every local buffer of more than 1 KiB. */
static void *thread_pointer(void) {
  void *result;
#if defined(__x86_64__)
  __asm__("mov %%fs:0, %0" : "=r"(result));
#else
  __asm__("mrs %0, tpidr_el0" : "=r"(result));
#endif
  return result;
}

static struct {
  void *thread;
  char *top, *end;
} workspaces[MAX_THREADS];

/* Gives thread `id` its memory, aligned to 64 bytes; -1 when there can be no such thread. */
int mft_workspace(int id, void *memory, unsigned long n_bytes) {
  if (id < 0 || id >= MAX_THREADS) return -1;
  workspaces[id].top = memory;
  workspaces[id].end = (char *)memory + n_bytes;
  return 0;
}

/* The calling thread is thread `id` from now on. */
void mft_workspace_owner(int id) {
  void *me = thread_pointer();
  for (int i = 0; i < MAX_THREADS; i++)
    if (workspaces[i].thread == me) workspaces[i].thread = 0;
  workspaces[id].thread = me;
}

static char error_text[ERROR_BYTES];

static void set_error(const char *text) {
  int n = 0;
  for (; text[n] && n < ERROR_BYTES - 1; n++) error_text[n] = text[n];
  error_text[n] = 0;
}

static void *workspace_alloc(int device, int device_id, unsigned long n_bytes, int code, int bits) {
  void *me = thread_pointer();
  n_bytes = (n_bytes + 63) & ~63ul;
  for (int i = 0; i < MAX_THREADS; i++) {
    if (workspaces[i].thread != me) continue;
    if ((unsigned long)(workspaces[i].end - workspaces[i].top) < n_bytes) {
      set_error("a kernel needs more workspace than the plan says");
      return 0;
    }
    char *result = workspaces[i].top;
    workspaces[i].top += n_bytes;
    return result;
  }
  set_error("a kernel ran on a thread that has no workspace");
  return 0;
}

static int workspace_free(int device, int device_id, void *memory) {
  void *me = thread_pointer();
  for (int i = 0; i < MAX_THREADS; i++)
    if (workspaces[i].thread == me) {
      workspaces[i].top = memory;
      return 0;
    }
  return -1;
}
void *(*__TVMBackendAllocWorkspace)(int, int, unsigned long, int, int) = workspace_alloc;
int (*__TVMBackendFreeWorkspace)(int, int, void *) = workspace_free;

/* ---- Errors and the two functions that compilers insist on ------------------------------------------------------------------ */
const char *mft_last_error(void) { return error_text; }

void TVMFFIErrorSetRaisedFromCStrParts(const char *kind, const char **parts, int n_parts) {
  int n = 0;
  for (int i = 0; i < n_parts; i++)
    for (const char *c = parts[i]; *c && n < ERROR_BYTES - 1; c++) error_text[n++] = *c;
  error_text[n] = 0;
}

/* volatile keeps the compiler from recognising the loop and calling memcpy from memcpy. */
void *memcpy(void *to, const void *from, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) ((volatile char *)to)[i] = ((const char *)from)[i];
  return to;
}

void *memset(void *to, int value, unsigned long n) {
  for (unsigned long i = 0; i < n; i++) ((volatile char *)to)[i] = (char)value;
  return to;
}
