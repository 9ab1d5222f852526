/* A qemu plugin that counts executed guest instructions and prints the total when the program ends.
 *
 * In:  qemu-aarch64 -plugin libcount_instructions.so …
 * Out: one line on qemu's log: "instructions: N".
 * The declarations are those of qemu-plugin.h, API version 1, which Debian does not package. Exact for one thread.
 */
#include <inttypes.h>
#include <stdio.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
typedef void (*tb_callback)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*exit_callback)(qemu_plugin_id_t, void *);
enum { INLINE_ADD_U64 = 0 };

extern void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_callback);
extern void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
extern void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_callback, void *);
extern uint64_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
extern void qemu_plugin_outs(const char *);

int qemu_plugin_version = 1;
static uint64_t total;

static void translated(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
  qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &total, qemu_plugin_tb_n_insns(block));
}

static void ended(qemu_plugin_id_t id, void *data) {
  char line[64];
  snprintf(line, sizeof line, "instructions: %" PRIu64 "\n", total);
  qemu_plugin_outs(line);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int count, char **words) {
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, 0);
  return 0;
}
