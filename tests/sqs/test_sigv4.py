"""A signature proves the secret, and exactly the request that was signed. botocore makes the signatures."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chalicelib.doors.http.exchange import Request
from chalicelib.doors.sqs.errors import SqsError
from chalicelib.doors.sqs.sigv4 import signed
from tests.sqs.signing import KEY_ID, NOW_MS, REGION, SECRET, altered, changed, sign

JSON_TYPE, FORM_TYPE = "application/x-amz-json-1.0", "application/x-www-form-urlencoded; charset=utf-8"
MINUTE_MS = 60_000


def is_proved(request: Request, at_ms: int = NOW_MS, region: str | None = REGION) -> bool:
    found = signed(request, region, at_ms)
    return found.access_key_id == KEY_ID and found.is_proved_by(SECRET)


def refused(request: Request, at_ms: int = NOW_MS, region: str | None = REGION) -> tuple[str, str]:
    """Kind and text."""
    with pytest.raises(SqsError) as caught:
        is_proved(request, at_ms, region)
    return caught.value.code, caught.value.message


def typical(**more: str) -> Request:
    headers: dict[str, Any] = {"x_amz_target": "AmazonSQS.SendMessage", "content_type": JSON_TYPE, **more}
    return sign(url="https://sqs.test/api/", body=b'{"MessageBody":"hi"}', **headers)


def authorization(request: Request, old: str, new: str) -> Request:
    header = request.headers["authorization"]
    assert old in header
    return changed(request, authorization=header.replace(old, new))


# -- what is accepted -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "",
        "/",
        "/123456789012/orders.fifo",
        "/123456789012/orders/",
        "/api/",
        "/a%20b/%C3%BC%2F%25",
        "/a b/ü+*'()!",
        "/~-._/$&,:;=@",
        "/?Action=ListQueues&Version=2012-11-05",
        "/?b=2&a=1&a=0&A=3&a-b=1&a%3Db=1",
        "/?empty=&none&a",
        "/?q=%C3%BC%20%2B%2F%3D%26~%2A",
        "/?a=b%3Dc",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_any_path_and_query_is_proved(method: str, place: str) -> None:
    assert is_proved(sign(method, f"https://sqs.test:8443{place}"))


SEGMENTS = st.text(min_size=1).filter(lambda text: text not in (".", ".."))
PAIRS = st.lists(st.tuples(st.text(), st.text()), max_size=4)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)


@given(st.lists(SEGMENTS, max_size=3), PAIRS, VALUES, st.binary())
def test_whatever_is_signed_is_proved(segments: list[str], pairs: Any, value: str, body: bytes) -> None:
    path = "".join(f"/{quote(segment, safe='')}" for segment in segments)
    query = urlencode(pairs, quote_via=quote, safe="")
    assert is_proved(sign(url=f"https://sqs.test{path}?{query}".rstrip("?"), body=body, x_amz_meta=value))


def test_a_query_is_the_same_in_any_order_and_spelling() -> None:
    request = sign("GET", "https://sqs.test/?a=~%20&b=2&b=1&c=")
    assert is_proved(request._replace(raw_query="b=1&c&a=%7e+&&b=%32"))
    assert is_proved(request._replace(raw_query=None))
    assert not is_proved(request._replace(raw_query="b=1&c=&a=~+&b=1"))
    assert not is_proved(request._replace(raw_query="b=1&c=&a=~+"))


def test_white_space_around_and_in_headers_does_not_count() -> None:
    request = typical(x_amz_meta="  a   b  c ")
    assert is_proved(request)
    assert is_proved(changed(request, x_amz_meta="a b \t c"))
    assert not is_proved(changed(request, x_amz_meta="ab c"))


def test_what_belongs_to_the_way_is_part_of_the_path() -> None:
    request = sign(url="https://sqs.test/api/123456789012/orders")
    assert is_proved(request._replace(prefix="/api", path="/123456789012/orders"))
    assert not is_proved(request._replace(path="/123456789012/orders"))


def test_headers_that_are_not_signed_do_not_count() -> None:
    assert is_proved(changed(typical(), user_agent="x", x_forwarded_host="other.test", content_length="1"))


def test_a_session_token_is_a_header_like_any_other() -> None:
    request = sign(token="a token")
    assert is_proved(request)
    assert not is_proved(changed(request, x_amz_security_token="another"))


def test_a_parameter_list_may_have_any_spaces_and_order() -> None:
    request = typical()
    _, *parts = request.headers["authorization"].replace(",", "").split(" ")
    for joined in (",", " ,  "):
        assert is_proved(changed(request, authorization=f"AWS4-HMAC-SHA256 {joined.join(reversed(parts))}"))


def test_a_given_hash_of_the_body_must_be_right() -> None:
    right = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    request = sign(x_amz_content_sha256=right)
    assert is_proved(request)
    kind, text = refused(request._replace(body=b"{}"))
    assert (kind, text.count(right)) == ("SignatureDoesNotMatch", 1)


def test_the_region_counts_where_the_deployment_has_one() -> None:
    request = sign(scope=("us-east-1", "sqs"))
    assert is_proved(request, region=None)
    assert refused(request) == (
        "SignatureDoesNotMatch",
        "The region in Credential must be 'eu-central-1'; it is 'us-east-1'.",
    )


def test_a_clock_may_be_wrong_by_a_quarter_of_an_hour() -> None:
    request = typical()
    assert is_proved(request, NOW_MS + 15 * MINUTE_MS + 999)
    assert is_proved(request, NOW_MS - 15 * MINUTE_MS)
    assert refused(request, NOW_MS + 15 * MINUTE_MS + 1_000) == (
        "SignatureDoesNotMatch",
        "Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z (20150830T125101Z - 15 min.)",
    )
    assert refused(request, NOW_MS - 15 * MINUTE_MS - 1) == (
        "SignatureDoesNotMatch",
        "Signature not yet current: 20150830T123600Z is still later than 20150830T123559Z (20150830T122059Z + 15 min.)",
    )


def test_midnight_changes_nothing() -> None:
    midnight_ms = 1_440_979_200_000
    assert is_proved(sign(at_ms=midnight_ms - 1), midnight_ms + MINUTE_MS)
    assert is_proved(sign(at_ms=midnight_ms), midnight_ms - MINUTE_MS)


# -- what is refused --------------------------------------------------------------------------------------------------

INCOMPLETE, MISMATCH = "IncompleteSignature", "SignatureDoesNotMatch"
THREE = "The header Authorization must have Credential, SignedHeaders and Signature, each once, separated by commas."
NAMES = "SignedHeaders must be names in lower case, in order, each once, separated by ';'; it is "
CREDENTIAL = "Credential must be <access key id>/<YYYYMMDD>/<region>/sqs/aws4_request; it is "
UNSIGNED = "The body must be signed: x-amz-content-sha256 must be its SHA-256; it is "
REFUSED: dict[str, tuple[Request, str, str]] = {
    "no header": (
        changed(typical(), authorization=None),
        "MissingAuthenticationToken",
        "The request must have a header Authorization with AWS4-HMAC-SHA256.",
    ),
    "presigned": (
        sign("GET", "https://sqs.test/?Action=ListQueues&X-Amz-Signature=0a"),
        INCOMPLETE,
        "Presigned URLs are not accepted: the signature must be in the header Authorization.",
    ),
    "4A": (
        authorization(typical(), "AWS4-HMAC-SHA256", "AWS4-ECDSA-P256-SHA256"),
        INCOMPLETE,
        "Signature Version 4A (AWS4-ECDSA-P256-SHA256) is not accepted: sign with AWS4-HMAC-SHA256.",
    ),
    "a token": (
        changed(typical(), authorization="Bearer dct_x"),
        INCOMPLETE,
        "The header Authorization must begin with AWS4-HMAC-SHA256.",
    ),
    "anonymous": (
        authorization(typical(), KEY_ID, ""),
        INCOMPLETE,
        "Anonymous requests are not accepted: Credential has no access key id.",
    ),
    "no parameters": (changed(typical(), authorization="AWS4-HMAC-SHA256"), INCOMPLETE, THREE),
    "one twice": (authorization(typical(), "SignedHeaders=", "Signature="), INCOMPLETE, THREE),
    "two headers": (
        changed(typical(), authorization=", ".join([typical().headers["authorization"]] * 2)),
        INCOMPLETE,
        THREE,
    ),
    "a short scope": (
        authorization(typical(), f"{KEY_ID}/20150830/", ""),
        INCOMPLETE,
        f"{CREDENTIAL}'eu-central-1/sqs/aws4_request'.",
    ),
    "a day of words": (
        authorization(typical(), "/20150830/", "/today/"),
        INCOMPLETE,
        f"{CREDENTIAL}'AKIDEXAMPLE/today/eu-central-1/sqs/aws4_request'.",
    ),
    "another day": (
        authorization(typical(), "/20150830/", "/20150829/"),
        MISMATCH,
        "The day in Credential must be that of x-amz-date, 20150830; it is 20150829.",
    ),
    "another service": (
        sign(scope=(REGION, "execute-api")),
        MISMATCH,
        "The service in Credential must be 'sqs'; it is 'execute-api'.",
    ),
    "another end": (
        authorization(typical(), "aws4_request", "aws5"),
        MISMATCH,
        "The end in Credential must be 'aws4_request'; it is 'aws5'.",
    ),
    "a short signature": (
        authorization(typical(), "Signature=", "Signature=0"),
        INCOMPLETE,
        "Signature in the header Authorization must be 64 hexadecimal digits in lower case.",
    ),
    "no signed headers": (
        authorization(sign(), "SignedHeaders=host;x-amz-date", "SignedHeaders="),
        INCOMPLETE,
        f"{NAMES}''.",
    ),
    "headers in capitals": (
        authorization(sign(), "host;", "Host;"),
        INCOMPLETE,
        f"{NAMES}'Host;x-amz-date'.",
    ),
    "a header signed twice": (
        authorization(sign(), "host;", "host;host;"),
        INCOMPLETE,
        f"{NAMES}'host;host;x-amz-date'.",
    ),
    "headers out of order": (
        authorization(sign(), "host;x-amz-date", "x-amz-date;host"),
        INCOMPLETE,
        f"{NAMES}'x-amz-date;host'.",
    ),
    "a list of commas": (
        changed(typical(), authorization=typical().headers["authorization"] + "," * 9),
        INCOMPLETE,
        THREE,
    ),
    "an unsigned host": (
        authorization(sign(), "host;", ""),
        INCOMPLETE,
        "The header host must be signed; SignedHeaders is 'x-amz-date'.",
    ),
    "an unsigned date": (
        sign(date="Sun, 30 Aug 2015 12:36:00 GMT"),
        INCOMPLETE,
        "The header x-amz-date must be signed; SignedHeaders is 'date;host'.",
    ),
    "a target added later": (
        changed(sign(), x_amz_target="AmazonSQS.DeleteQueue"),
        INCOMPLETE,
        "The header x-amz-target must be signed; SignedHeaders is 'host;x-amz-date'.",
    ),
    "a lost header": (
        changed(sign(x_amz_meta="a"), x_amz_meta=None),
        INCOMPLETE,
        "The header 'x-amz-meta' is signed, and did not arrive.",
    ),
    "a date of words": (
        changed(sign(), x_amz_date="today"),
        INCOMPLETE,
        "The header x-amz-date must be <YYYYMMDD>T<HHMMSS>Z; it is 'today'.",
    ),
    "an unsigned body": (
        sign(x_amz_content_sha256="UNSIGNED-PAYLOAD"),
        INCOMPLETE,
        f"{UNSIGNED}'UNSIGNED-PAYLOAD'.",
    ),
    "a body in signed chunks": (
        sign(x_amz_content_sha256="STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        INCOMPLETE,
        f"{UNSIGNED}'STREAMING-AWS4-HMAC-SHA256-PAYLOAD'.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_secret_makes_right_is_refused_in_words(case: str) -> None:
    request, *wanted = REFUSED[case]
    assert [*refused(request)] == wanted


def test_another_secret_proves_nothing() -> None:
    assert not is_proved(sign(secret="another-secret"))


# -- what is altered --------------------------------------------------------------------------------------------------


def test_no_character_of_what_is_signed_can_be_another() -> None:
    request = sign(
        url="https://sqs.test:8443/123456789012/orders?b=1&a=%C3%BC",
        body=b"\0\xff",
        content_length="2",
        content_type=JSON_TYPE,
        x_amz_target="AmazonSQS.SendMessage",
    )
    assert is_proved(request)
    for other in altered(request):
        assert not _is_accepted(other), other


def _is_accepted(request: Request) -> bool:
    """Fails on any error that is not the door's."""
    try:
        return is_proved(request)
    except SqsError:
        return False


def test_characters_that_utf_8_does_not_have_are_no_question_marks() -> None:
    request = sign("GET", "https://sqs.test/?a=%3F", x_amz_meta="?")
    assert is_proved(request)
    lone = "\ud800"
    for other in (
        changed(request, x_amz_meta=lone),
        request._replace(path=lone),
        request._replace(raw_query=f"a={lone}"),
        request._replace(raw_query=None, query=[("a", lone)]),
        request._replace(method=lone),
    ):
        assert not is_proved(other)


TYPICAL = typical()
PIECES = [
    *"=,;/ \t\n:%+&aZ09\0\xffü\ud800",
    "Signature=",
    "Credential=",
    "SignedHeaders=",
    "AWS4-HMAC-SHA256 ",
    "host;",
]


@st.composite
def mutated(draw: st.DrawFn, text: str) -> str:
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 70)))
        text = text[:start] + draw(st.sampled_from(["", *PIECES]) | st.text(max_size=3)) + text[end:]
    return text


@given(mutated(TYPICAL.headers["authorization"]))
def test_no_mutated_authorization_is_accepted_or_a_defect(text: str) -> None:
    is_same = "".join(text.split()) == "".join(TYPICAL.headers["authorization"].split())
    assert not _is_accepted(changed(TYPICAL, authorization=text)) or is_same


@given(st.sampled_from([*TYPICAL.headers, "x-amz-content-sha256", "x-new"]), st.text(max_size=30))
def test_no_header_is_a_defect(name: str, value: str) -> None:
    was = TYPICAL.headers.get(name, "")
    is_accepted = _is_accepted(changed(TYPICAL, **{name: value}))
    assert not is_accepted or value.split() == was.split() or name in ("content-length", "x-new")


@given(st.text(max_size=20), st.none() | st.text(max_size=20), st.lists(st.tuples(st.text(), st.text()), max_size=3))
def test_no_path_or_query_is_a_defect(path: str, raw_query: str | None, query: Any) -> None:
    request = TYPICAL._replace(path=path, raw_query=raw_query, query=query)
    if path != TYPICAL.path:
        assert not _is_accepted(request)
