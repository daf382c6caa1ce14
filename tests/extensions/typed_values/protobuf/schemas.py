"""Schemas that have all that protobuf has, in each of its syntaxes."""

from __future__ import annotations

_TYPES = (
    "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool string bytes"
)
KINDS = _TYPES.split()
_KEYS = [kind for kind in KINDS if kind not in ("double", "float", "bytes")]


def _fields(pattern: str, kinds: list[str], first: int) -> str:
    return "\n".join(pattern.format(kind=kind, n=number) for number, kind in enumerate(kinds, first))


_IMPORTS = "\n".join(
    f'import "google/protobuf/{name}.proto";'
    for name in ("timestamp", "duration", "wrappers", "struct", "any")
)
PROTO3 = f"""
syntax = "proto3";
package test.three;
{_IMPORTS}
// A comment.
message All {{
  {_fields("{kind} a_{kind} = {n};", KINDS, 1)}
  {_fields("optional {kind} o_{kind} = {n};", KINDS, 101)}
  {_fields("repeated {kind} r_{kind} = {n};", KINDS, 201)}
  {_fields("repeated {kind} u_{kind} = {n} [packed = false];", KINDS[:-2], 301)}
  {_fields("map<{kind}, Leaf> m_{kind} = {n};", _KEYS, 401)}
  {_fields("map<string, {kind}> v_{kind} = {n};", KINDS, 501)}
  Colour colour = 16; repeated Colour colours = 17; map<int32, Colour> by_colour = 18;
  oneof choice {{ int32 x = 19; string y = 20; Leaf z = 21; Colour c = 22; bytes w = 23; }}
  oneof other {{ Nested p = 24; double q = 25; }}
  Leaf leaf = 26; repeated Leaf leaves = 27; Nested nested = 28; repeated Nested nests = 29;
  google.protobuf.Timestamp at = 30; repeated google.protobuf.Timestamp ats = 31;
  google.protobuf.Duration took = 32; map<string, google.protobuf.Timestamp> by_time = 33;
  google.protobuf.StringValue s = 34; google.protobuf.Int64Value l = 35; google.protobuf.UInt32Value u = 36;
  repeated google.protobuf.BoolValue bs = 37; google.protobuf.UInt64Value ul = 38;
  google.protobuf.Struct json = 39; repeated google.protobuf.Value values = 40;
  google.protobuf.ListValue lv = 41;
  google.protobuf.Any any = 42;
  enum Colour {{ option allow_alias = true; RED = 0; GREEN = 1; ALSO_GREEN = 1; BLUE = -3; }}
  message Leaf {{ string text = 1; sint32 number = 2; repeated string words = 3; }}
  message Nested {{
    Leaf leaf = 1; repeated Leaf leaves = 2; map<string, Leaf> by_name = 3;
    oneof inner {{ Leaf one = 4; sint64 two = 5; }}
    google.protobuf.Timestamp at = 6;
    google.protobuf.Struct json = 536870911;
  }}
}}
message Other {{ int32 a = 1; }}
"""
PROTO2 = f"""
syntax = "proto2";
package test.two;
message All {{
  {_fields("optional {kind} a_{kind} = {n};", KINDS, 1)}
  {_fields("repeated {kind} r_{kind} = {n};", KINDS, 101)}
  {_fields("repeated {kind} p_{kind} = {n} [packed = true];", KINDS[:-2], 201)}
  optional int32 five = 31 [default = 5]; optional string words = 32 [default = "some \\"words\\""];
  optional bytes raw = 33 [default = "\\001\\xff"]; optional double inf = 34 [default = inf];
  optional bool yes = 35 [default = true]; optional Colour green = 36 [default = GREEN];
  optional Colour colour = 37; repeated Colour colours = 38; optional int64 minus = 39 [default = -0x10];
  optional float small = 40 [default = -1.5e-3];
  optional group Group = 41 {{ optional int32 a = 1; repeated string b = 2; optional Group inner = 3; }}
  repeated group Groups = 42 {{ optional string a = 1; optional group Deep = 2 {{ optional int32 b = 1; }} }}
  oneof choice {{ int32 x = 43; string y = 44; group Z = 45 {{ optional int32 v = 1; }} Colour c = 46; }}
  map<string, Zero> by_name = 47; map<string, string> words_by_name = 48;
  extensions 1000 to max;
  enum Colour {{ RED = 2; GREEN = 1; BLUE = -3; }}
  enum Zero {{ NIL = 0; ONE = 1; }}
}}
extend All {{ optional int32 more = 1000; }}
"""
EDITION = f"""
edition = "2023";
package test.edition;
import "google/protobuf/struct.proto";
option features.utf8_validation = NONE;
message All {{
  {_fields("{kind} a_{kind} = {n};", KINDS, 1)}
  {_fields("{kind} i_{kind} = {n} [features.field_presence = IMPLICIT];", KINDS, 101)}
  {_fields("repeated {kind} r_{kind} = {n};", KINDS, 201)}
  {_fields("repeated {kind} u_{kind} = {n} [features.repeated_field_encoding = EXPANDED];", KINDS[:-2], 301)}
  Leaf delimited = 30 [features.message_encoding = DELIMITED];
  repeated Leaf many = 31 [features.message_encoding = DELIMITED];
  map<string, Leaf> by_name = 32;
  Open open = 33; Closed closed = 34; repeated Closed all_closed = 35;
  string checked = 36 [features.utf8_validation = VERIFY];
  int32 five = 37 [default = 5];
  google.protobuf.Struct json = 38 [features.message_encoding = DELIMITED];
  repeated google.protobuf.Value values = 39 [features.message_encoding = DELIMITED];
  message Leaf {{ int32 a = 1; Leaf inner = 2 [features = {{ message_encoding: DELIMITED }}]; }}
  enum Open {{ ZERO = 0; ONE = 1; }}
  enum Closed {{ option features.enum_type = CLOSED; FIVE = 5; SIX = 6; }}
}}
"""
SCHEMAS = {"test.three.All": PROTO3, "test.two.All": PROTO2, "test.edition.All": EDITION}
