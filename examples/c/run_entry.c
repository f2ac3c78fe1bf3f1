/* Runs an entry of a package from C, call after call; its state lives on between the calls.

     run_entry m.vmfb m.irpa ENTRY INPUT OUTPUT [SIZE=NUMBER ...] [--state=state.safetensors]

   INPUT holds, call after call, the entry's inputs in the order of the header; OUTPUT gets its outputs in the same way.
   Both are arrays and nothing else: dense, row by row. There are as many calls as INPUT has arrays for; one where the
   entry has no inputs. A size is named as the header has it: T=4, "2*B=6". State starts as --state says, or as zeros.

   The files and the commands of the build: docs/c.md. */

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "iree/io/file_contents.h"
#include "model.h"

/* To the file as it is, and by its first elements to the terminal. */
static iree_status_t write_output(const model *m, const lir_tensor *t, iree_hal_buffer_view_t *view, FILE *file) {
  const size_t bytes = (size_t)iree_hal_buffer_view_byte_length(view);
  void *data = NULL;
  IREE_RETURN_IF_ERROR(iree_allocator_malloc(m->host, bytes + 1, &data));
  iree_status_t status = iree_hal_device_transfer_d2h(
      iree_runtime_session_device(m->session), iree_hal_buffer_view_buffer(view), 0, data, bytes,
      IREE_HAL_TRANSFER_BUFFER_FLAG_DEFAULT, iree_infinite_timeout());
  if (iree_status_is_ok(status) && fwrite(data, 1, bytes, file) != bytes) {
    status = iree_make_status(iree_status_code_from_errno(errno), "%s is not written", t->name);
  }
  iree_allocator_free(m->host, data);
  if (iree_status_is_ok(status)) {
    printf("%s ", t->name);
    status = iree_hal_buffer_view_fprint(stdout, view, 8, m->host);
    printf("\n");
  }
  return status;
}

static iree_status_t call_and_write(model *m, const lir_entry *entry, const sizes *given, const uint8_t *inputs,
                                    FILE *file) {
  iree_hal_buffer_view_t **outputs = NULL;
  IREE_RETURN_IF_ERROR(
      iree_allocator_malloc_array(m->host, entry->output_count + 1, sizeof *outputs, (void **)&outputs));
  iree_status_t status = call_entry(m, entry, given, inputs, outputs);
  for (size_t i = 0; i < entry->output_count; i++) {
    if (iree_status_is_ok(status)) status = write_output(m, &entry->outputs[i], outputs[i], file);
    iree_hal_buffer_view_release(outputs[i]);
  }
  iree_allocator_free(m->host, outputs);
  return status;
}

/* The arrays of all calls, and the bytes and the number of calls. */
static iree_status_t read_input(const model *m, const lir_entry *entry, const sizes *given, const char *path,
                                iree_io_file_contents_t **input, size_t *bytes, size_t *calls) {
  *bytes = 0;
  for (size_t i = 0; i < entry->input_count; i++) {
    layout of;
    IREE_RETURN_IF_ERROR(layout_of(&entry->inputs[i], given, &of));
    *bytes += of.bytes;
  }
  IREE_RETURN_IF_ERROR(iree_io_file_contents_read(iree_make_cstring_view(path), m->host, input));
  const size_t length = (*input)->const_buffer.data_length;
  *calls = *bytes > 0 ? length / *bytes : 1;
  if (*calls > 0 && length == *calls * *bytes) return iree_ok_status();
  return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "%s has %zu bytes, and a call takes %zu", path, length, *bytes);
}

static iree_status_t call_all(model *m, const lir_entry *entry, const sizes *given, const char *input_path,
                              const char *state_path, const char *output_path) {
  iree_io_file_contents_t *input = NULL;
  FILE *file = NULL;
  size_t bytes = 0, calls = 0;
  iree_status_t status = read_input(m, entry, given, input_path, &input, &bytes, &calls);
  if (iree_status_is_ok(status)) status = start_state(m, entry, given, state_path);
  if (iree_status_is_ok(status) && (file = fopen(output_path, "wb")) == NULL) {
    status = iree_make_status(iree_status_code_from_errno(errno), "%s is not opened", output_path);
  }
  for (size_t i = 0; iree_status_is_ok(status) && i < calls; i++) {
    status = call_and_write(m, entry, given, input->const_buffer.data + i * bytes, file);
  }
  if (file && fclose(file) != 0 && iree_status_is_ok(status)) {
    status = iree_make_status(iree_status_code_from_errno(errno), "%s is not written", output_path);
  }
  if (input) iree_io_file_contents_free(input);
  return status;
}

static const lir_entry *entry_of(const lir_package *package, const char *name) {
  for (size_t i = 0; i < package->entry_count; i++) {
    if (strcmp(package->entries[i].name, name) == 0) return &package->entries[i];
  }
  return NULL;
}

static bool has_size(const lir_tensor *tensors, size_t count, const char *text) {
  for (size_t i = 0; i < count; i++) {
    for (size_t axis = 0; axis < tensors[i].rank; axis++) {
      const size_t length = strlen(tensors[i].sizes[axis]);
      const bool same = strncmp(text, tensors[i].sizes[axis], length) == 0 && text[length] == '=';
      if (tensors[i].shape[axis] < 0 && same) return true;
    }
  }
  return false;
}

/* Whether an entry takes arrays of this SIZE=NUMBER. */
static bool is_a_size(const lir_package *package, const char *text) {
  for (size_t i = 0; i < package->entry_count; i++) {
    if (has_size(package->entries[i].inputs, package->entries[i].input_count, text)) return true;
  }
  return has_size(package->state, package->state_count, text);
}

int main(int argc, char **argv) {
  const char *state = NULL;
  if (argc > 6 && strncmp(argv[argc - 1], "--state=", 8) == 0) state = argv[--argc] + 8;
  if (argc < 6) {
    fprintf(stderr, "usage: %s m.vmfb m.irpa ENTRY INPUT OUTPUT [SIZE=NUMBER ...] [--state=FILE]\n", argv[0]);
    return 2;
  }
  const sizes given = {(size_t)(argc - 6), argv + 6};
  const lir_entry *entry = entry_of(&lir_m, argv[3]);
  if (!entry) {
    fprintf(stderr, "the header has no entry %s\n", argv[3]);
    return 1;
  }
  for (size_t i = 0; i < given.count; i++) {
    if (is_a_size(&lir_m, given.texts[i])) continue;
    fprintf(stderr, "%s is no SIZE=NUMBER of the header, and --state=FILE stands last\n", given.texts[i]);
    return 1;
  }
  model m;
  iree_status_t status = open_model(&m, &lir_m, argv[1], argv[2]);
  if (iree_status_is_ok(status)) status = call_all(&m, entry, &given, argv[4], state, argv[5]);
  close_model(&m);
  if (iree_status_is_ok(status)) return 0;
  iree_status_fprint(stderr, status);
  iree_status_free(status);
  return 1;
}
