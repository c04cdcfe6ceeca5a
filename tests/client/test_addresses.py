"""Where a client looks for the service and its token, and how it says that one of them is wrong."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from decant import (
    AsyncDecant,
    Decant,
    DecantError,
    Forbidden,
    SettingError,
    Unauthenticated,
    calls,
    operations,
)
from decant.contexts import Contexts, path_in, read, target, write
from tests.client.support.faces import Face
from tests.client.support.servers import answer, serving
from tests.local.serving import Running, running

OK = answer(200, {"status": "ok"})


def bearer(server: Any) -> list[str | None]:
    return [request.headers.get("authorization") for request in server.requests]


def test_the_argument_wins_over_the_environment(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DECANT_URL", "http://wrong.invalid")
    monkeypatch.setenv("DECANT_TOKEN", "of-the-environment")
    with serving(OK) as server:
        face(server.url).api.get_health()
        face(server.url, "of-the-argument").api.get_health()
    assert bearer(server) == ["Bearer of-the-environment", "Bearer of-the-argument"]


def test_the_environment_names_the_service(face: Face, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(OK) as server:
        monkeypatch.setenv("DECANT_URL", f"{server.url}/prod/")
        face().api.get_health()
    assert [request.target for request in server.requests] == ["/prod/health"]


def test_without_any_setting_it_is_on_this_machine() -> None:
    with Decant() as mq:
        assert mq.transport.address == "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("", "must look like"),
        ("localhost:8000", "must look like http://127.0.0.1:8000; it is 'localhost:8000'"),
        ("ftp://queue.example", "must look like"),
        ("http://", "must look like"),
        ("http://:8000", "must look like"),
        ("http://queue.example:port", "is no address"),
        ("http://queue.example:99999", "is no address"),
        ("http://[::1", "is no address"),
        ("http://queue.example/?a=b", "host, port and path alone"),
        ("http://queue.example/#a", "host, port and path alone"),
        ("http://queue.example/a b", "host, port and path alone"),
        ("http://queue.example/\r\nx: y", "host, port and path alone"),
        ("lambda:", "must name a stack"),
    ],
)
def test_an_address_that_is_none_is_named(url: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (Decant, AsyncDecant):
        with pytest.raises(SettingError, match=text):
            kind(url)
    if url:
        monkeypatch.setenv("DECANT_URL", url)
        with pytest.raises(SettingError, match="DECANT_URL" if "lambda" not in url else text):
            Decant()


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://user:secret@queue.example", "alone"),
        ("ftp://user:secret@queue.example", "must look like"),
        ("user:secret@queue.example", "must look like"),
        ("http://user:secret@queue.example:port", "is no address"),
        ("http://user:secret/more@queue.example", "is no address"),
    ],
)
def test_a_password_in_an_address_is_refused_and_not_shown(url: str, text: str) -> None:
    with pytest.raises(SettingError, match=text) as raised:
        Decant(url)
    assert "secret" not in str(raised.value)


def test_a_token_that_is_none_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingError, match="the token") as raised:
        Decant(token="secret\r\nx: y")
    assert "secret" not in str(raised.value)
    monkeypatch.setenv("DECANT_TOKEN", "sécret")
    with pytest.raises(SettingError, match="DECANT_TOKEN"):
        Decant()


def test_no_representation_shows_a_token(face: Face) -> None:
    mq = face("http://queue.example", "dct_secret")
    sent = calls.request(operations.get_health(), "dct_secret")
    assert sent.headers["authorization"] == "Bearer dct_secret"
    assert "secret" not in repr([mq.settings, sent])


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf"), True, "10"])
def test_a_timeout_that_makes_no_sense_is_named(timeout: Any) -> None:
    with pytest.raises(SettingError, match="timeout"):
        Decant(timeout=timeout)


# -- contexts ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return path_in(os.environ)


PROD, TEST = {"url": "http://prod.invalid", "token": "p"}, {"url": "http://test.invalid"}


def test_a_context_gives_address_and_token(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, Contexts("prod", {"prod": PROD, "test": TEST}))  # type: ignore[dict-item]
    assert target(None, None, os.environ)[:2] == ("http://prod.invalid", "p")
    monkeypatch.setenv("DECANT_CONTEXT", "test")
    assert target(None, None, os.environ)[:2] == ("http://test.invalid", None)
    assert target(None, "t", os.environ)[:2] == ("http://test.invalid", "t")
    monkeypatch.setenv("DECANT_CONTEXT", "none")
    with pytest.raises(SettingError, match=r"no context 'none' in .*; there are: prod, test"):
        Decant()


def test_the_token_of_a_context_goes_to_no_other_address(path: Path) -> None:
    write(path, Contexts("prod", {"prod": PROD}))  # type: ignore[dict-item]
    assert target("http://other.invalid", None, os.environ).token is None
    assert target(None, None, {**os.environ, "DECANT_URL": "http://other.invalid"}).token is None


def test_an_empty_token_is_none_whatever_the_environment_says(path: Path) -> None:
    write(path, Contexts("prod", {"prod": PROD, "test": TEST}))  # type: ignore[dict-item]
    environment = {**os.environ, "DECANT_TOKEN": "e", "DECANT_CONTEXT": "test"}
    assert target(None, None, environment).token == "e"
    assert target(None, "", environment).token is None


def test_what_is_written_is_read_again_and_private(path: Path) -> None:
    contexts = Contexts("prod", {"prod": PROD})  # type: ignore[dict-item]
    write(path, contexts)
    assert read(path) == contexts
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_file_that_others_may_read_is_refused(path: Path) -> None:
    write(path, Contexts(None, {}))
    path.chmod(0o644)
    with pytest.raises(SettingError, match=r"mode 0644.*chmod 600"):
        Decant()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rubbish",
        "[]",
        "{}",
        '{"contexts": []}',
        '{"contexts": {"a": {}}}',
        '{"contexts": {"a": {"url": 1}}}',
        "[" * 9_999,
    ],
)
def test_a_file_of_rubbish_is_named(path: Path, text: str) -> None:
    write(path, Contexts(None, {}))
    path.write_text(text)
    with pytest.raises(SettingError, match=rf"{path} is malformed"):
        Decant()


def test_a_file_that_cannot_be_read_or_written_is_named(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(SettingError, match=rf"cannot read {path}"):
        Decant()
    with pytest.raises(SettingError, match=rf"cannot write {path}"):
        write(path, Contexts(None, {}))
    with pytest.raises(SettingError, match="cannot write"):
        write(Path("/proc/decant/contexts.json"), Contexts(None, {}))


# -- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded() -> Any:
    with running(ACCESS="on") as server:
        yield server


def _first_token(server: Running) -> str:
    return server.banner.partition("TOKEN=")[2].split()[0]


def test_tokens_that_are_missing_wrong_or_expired_are_refused(face: Face, guarded: Running) -> None:
    url = f"http://127.0.0.1:{guarded.port}"
    admin = face(url, _first_token(guarded))
    right: Any = {"operations": ["produce"], "topics": "orders"}
    expired = admin.api.make_token(name="t", rights=[right], expires_at_ms=round(time.time() * 1_000) + 100)
    time.sleep(0.2)
    for token in (None, "dct_wrong", "x", expired["token"]):
        with pytest.raises(Unauthenticated):
            face(url, token).send("orders", "hello")


def test_a_token_of_too_few_rights_is_refused(face: Face, guarded: Running) -> None:
    url = f"http://127.0.0.1:{guarded.port}"
    admin = face(url, _first_token(guarded))
    admin.api.put_topic("orders")
    right: Any = {"operations": ["produce"], "topics": "orders"}
    few = face(url, admin.api.make_token(name="few", rights=[right])["token"])
    assert few.send("orders", "hello").id
    with pytest.raises(Forbidden, match="'consume'"):
        few.api.pop("orders", "billing")
    with pytest.raises(DecantError, match="Forbidden"):
        few.send("other", "hello")


def test_the_contexts_file_shows_its_form_in_the_docs() -> None:
    from decant import contexts

    shown = json.loads((contexts.__doc__ or "").partition("contexts.json")[2])
    assert contexts._contexts(shown).current == "prod"
