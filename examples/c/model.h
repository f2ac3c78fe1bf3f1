/* A package's module and weights, loaded by IREE's C API, and the state that lives between calls.

   Every function gives IREE's status: the caller looks at it and frees it. One model belongs to one thread at a time. */

#ifndef LSTM_IR_EXAMPLE_MODEL_H
#define LSTM_IR_EXAMPLE_MODEL_H

#include "iree/runtime/api.h"
#include "m.h" /* by lstm-ir show --c; its types are the same for every package */

enum { MAX_RANK = 16 };

/* Texts as SIZE=NUMBER: what a call's open sizes are. SIZE is as the header has it: T=4, "2*B=6". */
typedef struct sizes {
  size_t count;
  char **texts;
} sizes;

/* An array as a call has it: dense, row by row. */
typedef struct layout {
  iree_hal_dim_t shape[MAX_RANK];
  size_t count; /* of elements */
  size_t bytes;
} layout;

typedef struct model {
  const lir_package *package;
  iree_allocator_t host;
  iree_runtime_instance_t *instance;
  iree_runtime_session_t *session;
  iree_hal_buffer_view_t **state; /* for each place of package->state: NULL until it starts */
} model;

/* Loads the module and, where the package has weights, the file of weights. `close_model` is called also where this
   fails. */
iree_status_t open_model(model *m, const lir_package *package, const char *module, const char *weights);

void close_model(model *m);

/* The array that a call takes for `t` where its sizes are these. */
iree_status_t layout_of(const lir_tensor *t, const sizes *given, layout *out);

/* Starts the state that the entry reads: as the package's state.safetensors says, or, where `path` is NULL, as zeros. */
iree_status_t start_state(model *m, const lir_entry *entry, const sizes *given, const char *path);

/* One call. `inputs` holds the arrays of entry->inputs, one after the other. `outputs` has a place for each of
   entry->outputs, which the caller releases, also where this fails. New state takes the place of the old. */
iree_status_t call_entry(model *m, const lir_entry *entry, const sizes *given, const uint8_t *inputs,
                         iree_hal_buffer_view_t **outputs);

#endif
