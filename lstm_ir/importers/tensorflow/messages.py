"""TensorFlow's protobuf messages, as far as they are read: field numbers of its public .proto files.

They live in a descriptor pool of their own, under a package name of their own, so that TensorFlow may be imported
before or after: its messages stand in protobuf's default pool. What is not listed here is skipped by the reader.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from lstm_ir.ir.errors import ModelError

PACKAGE = "lstm_ir.tensorflow"
# Message: its fields as `number name type`; `*` repeated, `map<T>` from string to T, `value|` of the oneof `value`.
SCHEMA = """
GraphDef: 1 node NodeDef*, 2 library FunctionDefLibrary, 4 versions VersionDef
NodeDef: 1 name string, 2 op string, 3 input string*, 4 device string, 5 attr map<AttrValue>
AttrValue: 1 value|list ListValue, 2 value|s bytes, 3 value|i int64, 4 value|f float, 5 value|b bool,
    6 value|type int32, 7 value|shape TensorShapeProto, 8 value|tensor TensorProto, 9 value|placeholder string,
    10 value|func NameAttrList
ListValue: 2 s bytes*, 3 i int64*, 4 f float*, 5 b bool*, 6 type int32*, 7 shape TensorShapeProto*,
    8 tensor TensorProto*, 9 func NameAttrList*
NameAttrList: 1 name string, 2 attr map<AttrValue>
TensorShapeProto: 2 dim ShapeDim*, 3 unknown_rank bool
ShapeDim: 1 size int64, 2 name string
TensorProto: 1 dtype int32, 2 tensor_shape TensorShapeProto, 3 version_number int32, 4 tensor_content bytes,
    5 float_val float*, 6 double_val double*, 7 int_val int32*, 8 string_val bytes*, 9 scomplex_val float*,
    10 int64_val int64*, 11 bool_val bool*, 12 dcomplex_val double*, 13 half_val int32*, 16 uint32_val uint32*,
    17 uint64_val uint64*
FunctionDefLibrary: 1 function FunctionDef*, 3 registered_gradients RegisteredGradient*
RegisteredGradient: 1 gradient_func string, 2 registered_op_type string
FunctionDef: 1 signature OpDef, 3 node_def NodeDef*, 4 ret map<string>, 5 attr map<AttrValue>, 6 control_ret map<string>
OpDef: 1 name string, 2 input_arg ArgDef*, 3 output_arg ArgDef*, 17 is_stateful bool
ArgDef: 1 name string, 3 type int32, 4 type_attr string, 5 number_attr string, 6 type_list_attr string
SavedModel: 1 saved_model_schema_version int64, 2 meta_graphs MetaGraphDef*
MetaGraphDef: 1 meta_info_def MetaInfoDef, 2 graph_def GraphDef, 3 saver_def SaverDef,
    5 signature_def map<SignatureDef>, 7 object_graph_def SavedObjectGraph
SavedObjectGraph: 1 nodes SavedObject*, 2 concrete_functions map<SavedConcreteFunction>
SavedObject: 12 captured_tensor CapturedTensor
CapturedTensor: 1 name string, 2 concrete_function string
SavedConcreteFunction: 2 bound_inputs int32*
MetaInfoDef: 1 meta_graph_version string, 4 tags string*, 5 tensorflow_version string
SaverDef: 1 filename_tensor_name string, 2 save_tensor_name string, 3 restore_op_name string
SignatureDef: 1 inputs map<TensorInfo>, 2 outputs map<TensorInfo>, 3 method_name string
TensorInfo: 1 encoding|name string, 2 dtype int32, 3 tensor_shape TensorShapeProto, 4 encoding|coo_sparse Skipped,
    5 encoding|composite_tensor Skipped
Skipped:
VersionDef: 1 producer int32, 2 min_consumer int32
BundleHeaderProto: 1 num_shards int32, 2 endianness int32, 3 version VersionDef
BundleEntryProto: 1 dtype int32, 2 shape TensorShapeProto, 3 shard_id int32, 4 offset int64, 5 size int64,
    6 crc32c fixed32, 7 slices Skipped*
TrackableObjectGraph: 1 nodes TrackableObject*
TrackableObject: 2 attributes SerializedTensor*
SerializedTensor: 1 name string, 2 full_name string, 3 checkpoint_key string
"""
_MAP = re.compile(r"map<(\w+)>")


def message(name: str) -> Any:
    """An empty message. ModelError where protobuf is not installed."""
    return _classes()[name]()


def parsed(name: str, data: bytes, file: str, what: str) -> Any:
    """The message that these bytes hold. ModelError, with the name of the file, where they hold none."""
    made = message(name)
    try:
        made.ParseFromString(data)
    except Exception as e:  # protobuf's errors differ between its implementations
        raise ModelError(f"{file}: is not {what}, or is damaged: {e}") from e
    return made


@cache
def _classes() -> dict[str, Any]:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as e:
        raise ModelError("from_tf needs protobuf: pip install 'lstm-ir[tf]'") from e
    file = descriptor_pb2.FileDescriptorProto(name="lstm_ir_tensorflow.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _listed().items():
        made = file.message_type.add(name=name)
        for number, label, kind in fields:
            _add_field(made, int(number), label, kind)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = {m.name: pool.FindMessageTypeByName(f"{PACKAGE}.{m.name}") for m in file.message_type}
    return {name: message_factory.GetMessageClass(d) for name, d in found.items()}


def _listed() -> dict[str, list[list[str]]]:
    """The schema: of each message number, name and type of each field."""
    lines = re.sub(r",\n\s+", ", ", SCHEMA.strip()).splitlines()
    found = (line.split(":", 1) for line in lines)
    return {name: [f.split() for f in fields.split(",") if f.strip()] for name, fields in found}


def _add_field(descriptor: Any, number: int, label: str, kind: str) -> None:
    one_of, bar, name = label.rpartition("|")
    field = descriptor.field.add(name=name, number=number)
    entry = _MAP.fullmatch(kind)
    if bar:
        if not descriptor.oneof_decl:
            descriptor.oneof_decl.add(name=one_of)
        field.oneof_index = 0
    field.label = field.LABEL_REPEATED if entry or kind.endswith("*") else field.LABEL_OPTIONAL
    if entry:
        inner = descriptor.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        inner.options.map_entry = True
        _add_field(inner, 1, "key", "string")
        _add_field(inner, 2, "value", entry[1])
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{descriptor.name}.{inner.name}"
        return
    kind = kind.rstrip("*")
    if kind[0].isupper():
        field.type, field.type_name = field.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = getattr(field, f"TYPE_{kind.upper()}")
