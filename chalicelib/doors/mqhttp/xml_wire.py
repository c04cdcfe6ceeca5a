"""Reads and writes the XML of MQ over HTTP: a root, and below it elements with text."""

from __future__ import annotations

from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from chalicelib.core.base.fields import quoted
from chalicelib.core.base.limits import REQUEST_BYTES_MAX
from chalicelib.doors.mqhttp.errors import MqError, wrong

MEDIA_TYPE = "text/xml;charset=utf-8"
ELEMENTS_MAX = 16
"""In one request: as many receipt handles as a client may send."""

_NAMESPACE = "http://mq.aliyuncs.com/doc/v1/"
_BODY, _BODY_END = b"<MessageBody>", b"</MessageBody>"
_CDATA, _CDATA_END = b"<![CDATA[", b"]]>"
_NODE_SDK, _JAVA_SDK = "mq-nodejs-sdk/", "mq-java-sdk/"
_ESCAPES = ((b"&", b"&amp;"), (b"<", b"&lt;"), (b">", b"&gt;"))

# -- reading ----------------------------------------------------------------------------------------------------------


def elements(raw: bytes, root: str, user_agent: str = "") -> list[tuple[str, str]]:
    """The elements of a document with this root, each by its name and with its text, in their order; with a namespace
    or none. Raises MqError."""
    if len(raw) > REQUEST_BYTES_MAX:
        raise wrong(f"the request has more than {REQUEST_BYTES_MAX} bytes")
    begin, end = raw.find(_BODY) + len(_BODY), raw.rfind(_BODY_END)
    if begin < len(_BODY) or end < begin:
        return _XmlReader(root).read(raw)
    body = raw[begin:end]
    exact = raw[:begin] + _exact(body) + raw[end:]
    if body.count(_CDATA_END) <= 1 or user_agent.startswith(_NODE_SDK):
        return _XmlReader(root).read(exact)
    try:
        return _XmlReader(root).read(raw)  # a client may have split the section where the body has its end
    except MqError:
        return _XmlReader(root).read(exact)


def _exact(body: bytes) -> bytes:
    """The body of a message, spelled so that XML changes nothing in it: CR LF would be read as LF. Node's client writes
    it as a CDATA section whatever it has inside, so the section ends at its last end."""
    if body.startswith(_CDATA) and body.endswith(_CDATA_END):
        body = body[len(_CDATA) : -len(_CDATA_END)]
        for plain, escaped in _ESCAPES:
            body = body.replace(plain, escaped)
    return body if b"<" in body else body.replace(b"\r", b"&#13;")


class _XmlReader:
    def __init__(self, root: str) -> None:
        self._root = root
        self._open: list[str] = []
        self._found: list[tuple[str, str]] = []
        self._texts: list[str] = []

    def read(self, raw: bytes) -> list[tuple[str, str]]:
        parser: Any = expat.ParserCreate("UTF-8", " ")
        parser.buffer_text = True
        parser.StartDoctypeDeclHandler = self._refuse_doctype
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._text
        try:
            parser.Parse(raw, True)
        except expat.ExpatError as error:
            raise _malformed(f"the body of the request is not XML: {error}") from None
        return self._found

    def _refuse_doctype(self, *_: Any) -> None:
        raise _malformed("the body of the request has a document type, which is not allowed")

    def _start(self, name: str, _attributes: Any) -> None:
        name = name.rpartition(" ")[2]
        if not self._open and name != self._root:
            raise _malformed(f"the root of the document must be {self._root!r}; it is {quoted(name)}")
        if len(self._open) > 1:
            raise _malformed(f"element {quoted(self._open[-1])} must hold text alone; it has {quoted(name)}")
        if len(self._found) == ELEMENTS_MAX:
            raise wrong(f"element {self._root!r} must hold at most {ELEMENTS_MAX} elements; it has more")
        self._open.append(name)
        self._texts = []

    def _end(self, _name: str) -> None:
        name = self._open.pop()
        if self._open:
            self._found.append((name, "".join(self._texts)))
            self._texts = []

    def _text(self, text: str) -> None:
        if len(self._open) > 1:
            self._texts.append(text)
        elif text.strip():
            raise _malformed(f"element {self._root!r} must hold elements alone; it has text")


def _malformed(detail: str) -> MqError:
    return MqError("MalformedXML", detail)


# -- writing ----------------------------------------------------------------------------------------------------------


def element(name: str, text: str) -> str:
    return f"<{name}>{escaped(text)}</{name}>"


def escaped(text: str) -> str:
    """A bare CR would be read as LF."""
    return escape(text, {"\r": "&#13;"})


def document(root: str, inside: str, user_agent: str = "") -> str:
    """`user_agent`: of the Java SDK, which knows no error in a namespace that ends with a slash."""
    namespace = _NAMESPACE.removesuffix("/") if user_agent.startswith(_JAVA_SDK) else _NAMESPACE
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root} xmlns="{namespace}">{inside}</{root}>'
