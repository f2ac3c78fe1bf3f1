#include "model.h"

#include <string.h>

#include "iree/io/formats/parser_registry.h"
#include "iree/io/parameter_index_provider.h"
#include "iree/modules/io/parameters/module.h"

/* -- Loading -- */

/* The arrays of a file, by name. `preload` reads all of it into memory; otherwise IREE reads what it needs. */
static iree_status_t open_index(const char *path, bool preload, iree_allocator_t host,
                                iree_io_parameter_index_t **index) {
  iree_string_view_t name = iree_make_cstring_view(path);
  iree_io_file_handle_t *file = NULL;
  iree_status_t status = preload ? iree_io_file_handle_preload(IREE_IO_FILE_MODE_READ, name, host, &file)
                                 : iree_io_file_handle_open(IREE_IO_FILE_MODE_READ, name, host, &file);
  if (iree_status_is_ok(status)) status = iree_io_parameter_index_create(host, index);
  if (iree_status_is_ok(status)) status = iree_io_parse_file_index(name, file, *index, host);
  iree_io_file_handle_release(file); /* the index keeps it */
  return status;
}

/* Weights are a module of their own, which stands before the one that reads them. */
static iree_status_t append_weights(model *m, const char *path) {
  iree_io_parameter_index_t *index = NULL;
  iree_io_parameter_provider_t *provider = NULL;
  iree_vm_module_t *parameters = NULL;
  iree_status_t status = open_index(path, false, m->host, &index);
  if (iree_status_is_ok(status)) {
    status = iree_io_parameter_index_provider_create(
        iree_make_cstring_view(m->package->scope), index,
        IREE_IO_PARAMETER_INDEX_PROVIDER_DEFAULT_MAX_CONCURRENT_OPERATIONS, m->host, &provider);
  }
  if (iree_status_is_ok(status)) {
    status = iree_io_parameters_module_create(iree_runtime_instance_vm_instance(m->instance), 1, &provider, m->host,
                                              &parameters);
  }
  if (iree_status_is_ok(status)) status = iree_runtime_session_append_module(m->session, parameters);
  iree_vm_module_release(parameters);
  iree_io_parameter_provider_release(provider);
  iree_io_parameter_index_release(index);
  return status;
}

iree_status_t open_model(model *m, const lir_package *package, const char *module, const char *weights) {
  iree_runtime_instance_options_t instance_options;
  iree_runtime_session_options_t session_options;
  iree_hal_device_t *device = NULL;
  memset(m, 0, sizeof *m);
  m->package = package;
  m->host = iree_allocator_system();
  iree_runtime_instance_options_initialize(&instance_options);
  iree_runtime_instance_options_use_all_available_drivers(&instance_options);
  iree_runtime_session_options_initialize(&session_options);
  iree_status_t status = iree_runtime_instance_create(&instance_options, m->host, &m->instance);
  if (iree_status_is_ok(status)) { /* local-sync: the thread that calls does all the work */
    status = iree_runtime_instance_try_create_default_device(m->instance, iree_make_cstring_view("local-sync"),
                                                             &device);
  }
  if (iree_status_is_ok(status)) {
    status = iree_runtime_session_create_with_device(m->instance, &session_options, device, m->host, &m->session);
  }
  iree_hal_device_release(device); /* the session keeps it */
  if (iree_status_is_ok(status) && package->weight_count > 0) status = append_weights(m, weights);
  if (iree_status_is_ok(status)) {
    status = iree_runtime_session_append_bytecode_module_from_file(m->session, module);
  }
  if (iree_status_is_ok(status) && package->state_count > 0) {
    status = iree_allocator_malloc_array(m->host, package->state_count, sizeof *m->state, (void **)&m->state);
  }
  return status;
}

void close_model(model *m) {
  for (size_t i = 0; m->state && i < m->package->state_count; i++) iree_hal_buffer_view_release(m->state[i]);
  iree_allocator_free(m->host, m->state);
  iree_runtime_session_release(m->session);
  iree_runtime_instance_release(m->instance);
}

/* -- Arrays -- */

/* The number of SIZE=NUMBER. */
static iree_status_t size_of(const char *size, const sizes *given, iree_hal_dim_t *number) {
  const size_t length = strlen(size);
  for (size_t i = 0; i < given->count; i++) {
    const char *text = given->texts[i], *digits = text + length + 1;
    int64_t value = 0;
    if (strncmp(text, size, length) != 0 || text[length] != '=') continue;
    /* IREE reads the digits that a text begins with. */
    if (digits[strspn(digits, "0123456789")] || !iree_string_view_atoi_int64(iree_make_cstring_view(digits), &value)) {
      return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "%s is no size", text);
    }
    *number = (iree_hal_dim_t)value;
    return iree_ok_status();
  }
  return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "the call has a size %s: give %s=NUMBER", size, size);
}

iree_status_t layout_of(const lir_tensor *t, const sizes *given, layout *out) {
  out->count = 1;
  if (t->rank > MAX_RANK) {
    return iree_make_status(IREE_STATUS_UNIMPLEMENTED, "%s has more than %d axes", t->name, (int)MAX_RANK);
  }
  for (size_t i = 0; i < t->rank; i++) {
    out->shape[i] = (iree_hal_dim_t)t->shape[i];
    if (t->shape[i] < 0) {
      IREE_RETURN_IF_ERROR(size_of(t->sizes[i], given, &out->shape[i]));
    }
    if (out->shape[i] != 0 && out->count > PTRDIFF_MAX / 16 / out->shape[i]) { /* bytes and their sums are numbers */
      return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "%s: %s of these sizes is too large", t->name, t->type);
    }
    out->count *= (size_t)out->shape[i];
  }
  out->bytes = out->count * iree_hal_element_dense_byte_count(t->element_type);
  return iree_ok_status();
}

/* A copy of the data, aligned as modules want it. */
static iree_status_t make_view(const model *m, size_t rank, const iree_hal_dim_t *shape, uint32_t element_type,
                               const void *data, size_t bytes, iree_hal_buffer_view_t **view) {
  iree_hal_buffer_params_t params;
  memset(&params, 0, sizeof params);
  params.type = IREE_HAL_MEMORY_TYPE_DEVICE_LOCAL;
  params.access = IREE_HAL_MEMORY_ACCESS_ALL;
  params.usage = IREE_HAL_BUFFER_USAGE_DEFAULT;
  return iree_hal_buffer_view_allocate_buffer_copy(
      iree_runtime_session_device(m->session), iree_runtime_session_device_allocator(m->session), rank, shape,
      element_type, IREE_HAL_ENCODING_TYPE_DENSE_ROW_MAJOR, params, iree_make_const_byte_span(data, bytes), view);
}

/* -- State -- */

/* The start that the file has. An axis of an open size has one element there, which stands for all. */
static iree_status_t spread(const model *m, const lir_tensor *t, const layout *to, iree_io_parameter_index_t *index,
                            uint8_t *data) {
  const size_t bytes = iree_hal_element_dense_byte_count(t->element_type);
  const iree_io_parameter_index_entry_t *entry = NULL;
  iree_io_file_mapping_t *mapping = NULL;
  size_t count = 1;
  for (size_t i = 0; i < t->rank; i++) count *= t->shape[i] < 0 ? 1 : (size_t)t->shape[i];
  IREE_RETURN_IF_ERROR(iree_io_parameter_index_lookup(index, iree_make_cstring_view(t->name), &entry));
  if (entry->type != IREE_IO_PARAMETER_INDEX_ENTRY_STORAGE_TYPE_FILE || entry->length != count * bytes) {
    return iree_make_status(IREE_STATUS_INVALID_ARGUMENT, "%s of the state file is no start of %s", t->name, t->type);
  }
  IREE_RETURN_IF_ERROR(iree_io_file_map_view(entry->storage.file.handle, IREE_IO_FILE_ACCESS_READ,
                                             entry->storage.file.offset, (iree_host_size_t)entry->length,
                                             IREE_IO_FILE_MAPPING_FLAG_NONE, m->host, &mapping));
  const uint8_t *start = iree_io_file_mapping_contents_ro(mapping).data;
  for (size_t i = 0; i < to->count; i++) {
    size_t rest = i, from = 0, stride = 1;
    for (size_t axis = t->rank; axis-- > 0; rest /= to->shape[axis]) {
      if (t->shape[axis] < 0) continue;
      from += rest % to->shape[axis] * stride;
      stride *= to->shape[axis];
    }
    memcpy(data + i * bytes, start + from * bytes, bytes);
  }
  iree_io_file_mapping_release(mapping);
  return iree_ok_status();
}

static iree_status_t start_place(model *m, size_t place, const sizes *given, iree_io_parameter_index_t *index) {
  const lir_tensor *t = &m->package->state[place];
  uint8_t *data = NULL; /* zeros, as this allocation gives them; one byte more, for arrays without elements */
  layout to;
  IREE_RETURN_IF_ERROR(layout_of(t, given, &to));
  IREE_RETURN_IF_ERROR(iree_allocator_malloc(m->host, to.bytes + 1, (void **)&data));
  iree_status_t status = index ? spread(m, t, &to, index, data) : iree_ok_status();
  if (iree_status_is_ok(status)) {
    iree_hal_buffer_view_release(m->state[place]);
    m->state[place] = NULL;
    status = make_view(m, t->rank, to.shape, t->element_type, data, to.bytes, &m->state[place]);
  }
  iree_allocator_free(m->host, data);
  return status;
}

iree_status_t start_state(model *m, const lir_entry *entry, const sizes *given, const char *path) {
  iree_io_parameter_index_t *index = NULL;
  iree_status_t status = path ? open_index(path, true, m->host, &index) : iree_ok_status();
  for (size_t i = 0; iree_status_is_ok(status) && i < entry->read_count; i++) {
    status = start_place(m, entry->reads[i], given, index);
  }
  iree_io_parameter_index_release(index);
  return status;
}

/* -- Calls -- */

/* A copy of the data becomes the next argument. */
static iree_status_t push_array(const model *m, size_t rank, const iree_hal_dim_t *shape, uint32_t element_type,
                                const void *data, size_t bytes, iree_runtime_call_t *call) {
  iree_hal_buffer_view_t *view = NULL;
  iree_status_t status = make_view(m, rank, shape, element_type, data, bytes, &view);
  if (iree_status_is_ok(status)) status = iree_runtime_call_inputs_push_back_buffer_view(call, view);
  iree_hal_buffer_view_release(view); /* the call keeps it */
  return status;
}

static iree_status_t push_i32(int32_t value, iree_runtime_call_t *call) {
  const iree_vm_value_t held = iree_vm_value_make_i32(value);
  return iree_vm_list_push_value(iree_runtime_call_inputs(call), &held);
}

/* The order of the header: inputs, state, and for kernels that may share their work a queue, the number of threads and
   whether there are helpers. */
static iree_status_t push_arguments(const model *m, const lir_entry *entry, const sizes *given, const uint8_t *inputs,
                                    iree_runtime_call_t *call) {
  static const uint8_t queue[LIR_QUEUE_BYTES];
  const iree_hal_dim_t queue_shape = LIR_QUEUE_BYTES;
  for (size_t i = 0; i < entry->input_count; i++) {
    const lir_tensor *t = &entry->inputs[i];
    layout of;
    IREE_RETURN_IF_ERROR(layout_of(t, given, &of));
    IREE_RETURN_IF_ERROR(push_array(m, t->rank, of.shape, t->element_type, inputs, of.bytes, call));
    inputs += of.bytes;
  }
  for (size_t i = 0; i < entry->read_count; i++) {
    IREE_RETURN_IF_ERROR(iree_runtime_call_inputs_push_back_buffer_view(call, m->state[entry->reads[i]]));
  }
  if (!entry->shares_work) return iree_ok_status();
  IREE_RETURN_IF_ERROR(push_array(m, 1, &queue_shape, IREE_HAL_ELEMENT_TYPE_SINT_8, queue, sizeof queue, call));
  IREE_RETURN_IF_ERROR(push_i32(1, call));
  return push_i32(0, call);
}

static iree_status_t pop_results(model *m, const lir_entry *entry, iree_runtime_call_t *call,
                                 iree_hal_buffer_view_t **outputs) {
  for (size_t i = 0; i < entry->output_count; i++) {
    IREE_RETURN_IF_ERROR(iree_runtime_call_outputs_pop_front_buffer_view(call, &outputs[i]));
  }
  for (size_t i = 0; i < entry->write_count; i++) {
    iree_hal_buffer_view_t *view = NULL;
    IREE_RETURN_IF_ERROR(iree_runtime_call_outputs_pop_front_buffer_view(call, &view));
    iree_hal_buffer_view_release(m->state[entry->writes[i]]);
    m->state[entry->writes[i]] = view;
  }
  return iree_ok_status();
}

iree_status_t call_entry(model *m, const lir_entry *entry, const sizes *given, const uint8_t *inputs,
                         iree_hal_buffer_view_t **outputs) {
  iree_runtime_call_t call;
  memset(outputs, 0, entry->output_count * sizeof *outputs);
  IREE_RETURN_IF_ERROR(
      iree_runtime_call_initialize_by_name(m->session, iree_make_cstring_view(entry->function), &call));
  iree_status_t status = push_arguments(m, entry, given, inputs, &call);
  if (iree_status_is_ok(status)) status = iree_runtime_call_invoke(&call, 0);
  if (iree_status_is_ok(status)) status = pop_results(m, entry, &call, outputs);
  iree_runtime_call_deinitialize(&call);
  return status;
}
