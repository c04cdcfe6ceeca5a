"""Messages as SQS clients read and write them: their attributes with MD5, and their ids.

An attribute of type `String` is the property of its name. The types of the others are one property more, `sqs:types`.
The attribute `decant.tag` is the message's tag. Properties that begin with `sqs:` are the door's own, and are not
shown: no attribute has a colon in its name. Nor is the reason of a dead letter, which keeps the attributes that were
sent.

An id is a UUID of version 8 (RFC 9562), made of the service's own id and read back, or of version 4 at random. Version
8 has 122 free bits. From the left: the entry id, 64 of them; 1 if the message has waited; the queue, 7; and the offset,
or the due time of one that has waited, 50."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from chalicelib.core.base.errors import DecantError
from chalicelib.core.base.fields import Label
from chalicelib.core.base.message import (
    ENTRY_ID_BYTES,
    Message,
    delayed_id,
    message_id,
    parse_delayed_id,
    parse_message_id,
)
from chalicelib.core.dead_letters.move import REASON, SOURCE
from chalicelib.core.producing.new_message import parse_tag
from chalicelib.doors.sqs.action import BLOB, TEXT, Json, Map, Structure
from chalicelib.doors.sqs.errors import SqsError
from chalicelib.doors.xml_text import is_sendable

VALUE = Structure({"DataType": TEXT, "StringValue": TEXT, "BinaryValue": BLOB})
ATTRIBUTES = Map(VALUE)

ATTRIBUTES_MAX = 10
_CHARS_MAX = 256
"""The longest name, and the longest type."""

TAG, ENCODING = "decant.tag", "decant.encoding"
OWN_PREFIX = "sqs:"
TYPES = OWN_PREFIX + "types"

_NAME = re.compile("[A-Za-z0-9_-]([A-Za-z0-9_.\u00c0-\u017f-]*[A-Za-z0-9_\u00c0-\u017f-])?|[\u00c0-\u017f]")
_RESERVED = ("aws.", "amazon.")
_TYPE = re.compile(r"(String|Number|Binary)(\..*)?", re.DOTALL)
_NUMBER = re.compile(r"[+-]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?")
"""It gives no digit back: a hundred thousand of them could be cut in two in as many ways."""


class Attribute(NamedTuple):
    """`type`: with the label that the sender gave it, after a dot."""

    type: str
    value: str | bytes

    @property
    def data(self) -> bytes:
        return self.value if isinstance(self.value, bytes) else self.value.encode()

    def as_json(self) -> Json:
        return {"DataType": self.type, "BinaryValue" if isinstance(self.value, bytes) else "StringValue": self.value}


Attributes = Mapping[str, Attribute]


# -- sent -------------------------------------------------------------------------------------------------------------


def parse(given: Mapping[str, Json], noun: str = "user") -> dict[str, Attribute]:
    """The attributes of a message that is sent. `noun`: what error texts call them. Raises SqsError."""
    if len(given) > ATTRIBUTES_MAX:
        raise _wrong(f"Number of message attributes [{len(given)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].")
    return {name: _attribute(name, value, noun) for name, value in given.items()}


def _attribute(name: str, given: Json, noun: str) -> Attribute:
    if not _NAME.fullmatch(name) or ".." in name or len(name) > _CHARS_MAX or name.lower().startswith(_RESERVED):
        raise _wrong(
            f"The message attribute name '{name}' is invalid. A name has 1 to {_CHARS_MAX} letters, digits,"
            " underscores, hyphens and periods, begins and ends with no period, has no two in succession, and does not"
            " begin with AWS. or Amazon."
        )
    type_ = given.get("DataType", "")
    known = _TYPE.fullmatch(type_)
    if known is None or len(type_) > _CHARS_MAX or not is_sendable(type_):
        raise _wrong(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type prefixes"
            " is Binary, Number, and String."
        )
    value = given.get("BinaryValue" if known[1] == "Binary" else "StringValue")
    if not value:
        raise _wrong(f"Message ({noun}) attribute '{name}' must contain a non-empty value of type '{known[1]}'.")
    if known[1] == "Number" and not _NUMBER.fullmatch(value):
        raise _wrong(f"Can't cast the value of message ({noun}) attribute '{name}' to a number.")
    if isinstance(value, str) and not is_sendable(value):
        raise _wrong(f"Message ({noun}) attribute '{name}' has characters not allowed.")
    return Attribute(type_, value)


def properties_and_tag(attributes: Attributes) -> tuple[dict[str, str], str | None]:
    """The properties of a message with these attributes. Raises SqsError for a tag that is none."""
    plain = {name: attribute for name, attribute in attributes.items() if name != TAG}
    types = {name: attribute.type for name, attribute in plain.items() if attribute.type != "String"}
    properties = {name: _property(attribute) for name, attribute in plain.items()}
    if types:
        properties[TYPES] = orjson.dumps(types).decode()
    return properties, _tag(attributes[TAG]) if TAG in attributes else None


def _property(attribute: Attribute) -> str:
    value = attribute.value
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _tag(attribute: Attribute) -> str:
    if attribute.type != "String":
        raise _wrong(f"The message attribute '{TAG}' must be of type 'String'.")
    try:
        return parse_tag(attribute.value, Label(TAG, "The message attribute"))
    except DecantError as wrong:
        raise _wrong(wrong.detail) from None


def _wrong(message: str) -> SqsError:
    return SqsError("InvalidParameterValue", message)


# -- received ---------------------------------------------------------------------------------------------------------


def of_message(message: Message) -> dict[str, Attribute]:
    """The attributes of a message, sent by any client and in any way."""
    properties = message.properties
    types = _types(properties.get(TYPES))
    own = {REASON} if SOURCE in properties else set()
    shown = {
        name: _received(types.get(name, "String"), value)
        for name, value in properties.items()
        if not name.startswith(OWN_PREFIX) and name not in own
    }
    if message.tag is not None:
        shown[TAG] = Attribute("String", message.tag)
    return shown


def _types(text: str | None) -> Mapping[str, str]:
    """Nothing where it is not as the door writes it: over JSON, a property can be anything."""
    try:
        types = orjson.loads(text or "{}")
    except ValueError:
        return {}
    known = types.items() if isinstance(types, dict) else ()
    return {name: type_ for name, type_ in known if isinstance(type_, str) and _TYPE.fullmatch(type_)}


def _received(type_: str, text: str) -> Attribute:
    """Over JSON, a text can have characters that no attribute has here: it is then shown as bytes."""
    if not type_.startswith("Binary"):
        return Attribute(type_, text) if is_sendable(text) else Attribute("Binary", text.encode())
    try:
        return Attribute(type_, base64.b64decode(text, validate=True))
    except ValueError:
        return Attribute("String", text)


def selected(attributes: Attributes, wanted: Iterable[str]) -> dict[str, Attribute]:
    """Those that a receive asks for: all of them, by the beginning of their names, or by name."""
    names = set(wanted)
    if names & {"All", ".*", "*"}:
        return dict(attributes)
    prefixes = tuple(name.removesuffix(".*") for name in names if name.endswith(".*"))
    return {name: each for name, each in attributes.items() if name in names or name.startswith(prefixes)}


# -- both -------------------------------------------------------------------------------------------------------------


def bytes_of(attributes: Attributes) -> int:
    """Their share of the size of a message."""
    return sum(len(name.encode()) + len(each.type.encode()) + len(each.data) for name, each in attributes.items())


def md5_of(attributes: Attributes) -> str:
    """Each is digested in the order of names: the name, the type, 1 or 2 for text or bytes, and the value, with their
    lengths."""
    digest = hashlib.md5(usedforsecurity=False)
    for name, attribute in sorted(attributes.items()):
        for part in (name.encode(), attribute.type.encode()):
            digest.update(_counted(part))
        digest.update(b"\x02" if isinstance(attribute.value, bytes) else b"\x01")
        digest.update(_counted(attribute.data))
    return digest.hexdigest()


def md5_of_body(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()


def _counted(part: bytes) -> bytes:
    return len(part).to_bytes(4) + part


_QUEUE_BITS, _PLACE_BITS = 7, 50
_HIGH, _MIDDLE, _LOW = 48, 12, 62
"""The free bits before the version, between it and the variant, and behind that."""
_CUSTOM, _RANDOM = 8, 4
"""Versions."""
_VARIANT = 2

_FORM = re.compile("([0-9a-f]{8})-([0-9a-f]{4})-8([0-9a-f]{3})-([89ab][0-9a-f]{3})-([0-9a-f]{12})")


def uuid_of(own_id: str) -> str:
    """The UUID of the message with this id."""
    waited = parse_delayed_id(own_id)
    parts = waited or parse_message_id(own_id)
    if parts is None:
        raise ValueError(f"{own_id!r} is no message id")
    entry_id, queue, place = parts
    named = (int.from_bytes(entry_id) << 1 | bool(waited)) << _QUEUE_BITS | queue
    return _spelled(_CUSTOM, named << _PLACE_BITS | place)


def own_id_of(uuid: str) -> str | None:
    """The id of the message with this UUID; None if the service makes no such UUIDs."""
    form = _FORM.fullmatch(uuid)
    if form is None:
        return None
    high, middle, low = int(form[1] + form[2], 16), int(form[3], 16), int(form[4] + form[5], 16)
    named, place = divmod((high << _MIDDLE | middle) << _LOW | low & (1 << _LOW) - 1, 1 << _PLACE_BITS)
    entry, queue = divmod(named, 1 << _QUEUE_BITS)
    make = delayed_id if entry & 1 else message_id
    return make((entry >> 1).to_bytes(ENTRY_ID_BYTES), queue, place)


def random_uuid(entropy: bytes) -> str:
    """A UUID made of 16 random bytes."""
    return _spelled(_RANDOM, int.from_bytes(entropy) >> 128 - _HIGH - _MIDDLE - _LOW)


def _spelled(version: int, free: int) -> str:
    """The UUID with these 122 bits."""
    rest, low = divmod(free, 1 << _LOW)
    high, middle = divmod(rest, 1 << _MIDDLE)
    text = f"{((high << 4 | version) << _MIDDLE | middle) << 2 + _LOW | _VARIANT << _LOW | low:032x}"
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
