"""The version block: where a merged model came from, as ordinary metadata in its GGUF header.

In:  a VersionBlock and the base's fields.
Out: the fields of the new file; or the block read back, and whether the file's payload still has its checksum.
The compiler sets aside room under RESERVED_KEY; the block takes its place byte for byte, so the header and with it the
whole file keep their size. The payload is everything behind the header, as it cannot contain its own checksum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..bundle.plan import AdapterKind
from ..errors import UserError
from ..gguf.file import GgufFile, TensorSource, header_entry_bytes
from ..gguf.types import Field, encode_string
from ..plain_data import bind, fields_of
from ..storage.durable import sha256_of_file

KEY_PREFIX = "mft.version."
RESERVED_KEY = "mft.reserved"
RESERVED_BYTES = 2048
"""what the compiler sets aside in a base: a version block takes about 1,100"""
NO_PAYLOAD = "0" * 64
IMPORTED = "imported"
"""stands where a version has the fingerprint of its training data"""
MADE_BY_ANOTHER = "use the runtime that made the version"
_TYPE_NAMES = {int: "u32", float: "f64"}
"""of the fields that are no texts"""


@dataclass(frozen=True)
class VersionBlock:
    """One version's origin. The fields from adapter_kind on are filled in by the merge."""

    id: str
    parent: str
    """version that was trained from; "base" for the bundle's own model"""
    base_id: str
    base_sha256: str
    """of the bundle's model.gguf"""
    data_fingerprint: str
    """of the training cache"""
    steps: int
    recipe_sha256: str
    created_utc: str
    """2026-01-31T12:00:00Z"""
    tool: str
    """name and version of the runtime that merged"""
    adapter_kind: Literal["", AdapterKind] = ""
    adapter_scale: float = 0.0
    """effective: alpha/rank is divided out"""
    adapter_digest: str = ""
    policy: Literal["", "fold", "exact"] = ""
    """fold or exact: how the adapter went into the weights"""
    payload_sha256: str = NO_PAYLOAD

    def as_fields(self) -> dict[str, Field]:
        return {KEY_PREFIX + name: Field(_TYPE_NAMES.get(hint, "str"), getattr(self, name)) for name, (_, hint) in fields_of(type(self)).items()}


def reserved_field() -> Field:
    """What the compiler writes under RESERVED_KEY into a base."""
    return Field("str", " " * RESERVED_BYTES)


def read_version_block(model: GgufFile) -> VersionBlock | None:
    """None for a file without one, such as the bundle's base."""
    values = {key.removeprefix(KEY_PREFIX): value for key, value in model.metadata.items() if key.startswith(KEY_PREFIX)}
    if not values:
        return None
    if missing := fields_of(VersionBlock).keys() - values.keys():
        raise UserError(str(model.path), f"its version block lacks {', '.join(sorted(missing))}", remedy=MADE_BY_ANOTHER)
    return bind(VersionBlock, values, f"{model.path}: version block", MADE_BY_ANOTHER)


def payload_is_intact(model: GgufFile) -> bool:
    """Whether the bytes behind the header are those that were merged; False too for a file without a version block."""
    block = read_version_block(model)
    return block is not None and sha256_of_file(model.path, model.data_offset) == block.payload_sha256


def fields_with_block(base: GgufFile, changed: Mapping[str, Field], block: VersionBlock, tensors: Sequence[TensorSource]) -> dict[str, Field]:
    """The base's fields, `changed` ones replaced, with the block in the room that was set aside.

    When the room is too small, or the base was not made by the compiler and has none, the header grows.
    """
    fields = {key: field for key, field in base.fields.items() if not key.startswith(KEY_PREFIX) and key != RESERVED_KEY}
    fields |= {**changed, **block.as_fields()}
    entry_bytes = len(encode_string(RESERVED_KEY) + Field("str", "").encode())
    left = base.header_bytes - header_entry_bytes(fields, tensors, base.alignment) - entry_bytes
    return {**fields, RESERVED_KEY: Field("str", " " * left)} if left >= 0 else fields
