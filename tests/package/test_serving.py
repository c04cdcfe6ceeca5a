"""`decant serve` of the installed wheel, and all that its image does which needs no container engine."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.local.serving import START_SECONDS, Running, environment
from tests.package.conftest import Installed
from tests.support.emulators import ROOT, free_port

CONTAINERFILE = (ROOT / "Containerfile").read_text()
TOKEN = "dct_ABCDEFGHIJKLMNOP_" + "x" * 43


@contextmanager
def serving(installed: Installed, *arguments: str, **settings: str) -> Iterator[Running]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [str(installed.bin / "decant"), "serve", *arguments],
        cwd=installed.folder,
        env=environment(**{"PORT": "0", **settings}),
        stdout=pipe,
        stderr=pipe,
        text=True,
    )
    killer = threading.Timer(START_SECONDS, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or (lines[-1] and "decant take" not in lines[-1]):
            lines.append(process.stdout.readline())
        assert lines[-1], process.communicate()
        yield Running(process, "".join(lines).replace("0.0.0.0", "127.0.0.1"))
    finally:
        killer.cancel()
        process.kill()
        process.communicate()


def refused(installed: Installed, *arguments: str) -> str:
    done = installed.run("decant", "serve", "--port", "0", *arguments)
    assert done.returncode != 0
    assert done.stdout == ""
    return done.stderr


def test_it_serves_outside_the_clone(installed: Installed) -> None:
    with serving(installed) as server:
        assert server.ask("PUT", "/topics/orders")[0] == 201
        assert server.ask("POST", "/topics/orders/messages", '{"messages": [{"body": "a"}]}')[0] == 200


def test_it_makes_the_topics_and_groups_of_a_seed_once(installed: Installed, tmp_path: Path) -> None:
    seed, data = tmp_path / "seed.toml", str(tmp_path / "data")
    seed.write_text("[orders]\nqueues = 2\n[orders.groups.billing]\nmax_attempts = 3\n")
    with serving(installed, "--seed", str(seed), "--data", data) as server:
        assert "seed: made orders, orders.groups.billing\n" in server.banner
        assert server.ask("PUT", "/topics/orders", '{"queues": 4}')[0] == 200
    seed.write_text('{"orders": {"queues": 2, "groups": {"mail": {}}}}')
    with serving(installed, "--seed", str(seed.rename(tmp_path / "seed.json")), "--data", data) as server:
        assert "seed: made orders.groups.mail\n" in server.banner
        assert json.loads(server.ask("GET", "/topics/orders")[2])["queues"] == 4
        assert json.loads(server.ask("GET", "/topics/orders/groups/billing")[2])["max_attempts"] == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[orders]\nqeues = 2\n", "SEED: [orders] of '{path}': field 'qeues' is not known"),
        ("[orders.groups.b]\nmax_attempts = 0\n", "SEED: [orders.groups.b] of '{path}': field 'max_attempts' must be"),
        ("orders = 2\n", "SEED: [orders] of '{path}' must be a table of settings; it is 2"),
        ("[orders]\ngroups = 2\n", "SEED: [orders.groups] of '{path}' must be a table of names; it is 2"),
        ("[orders\n", "SEED: '{path}' is neither TOML nor, by its name, JSON: "),
    ],
)
def test_a_seed_that_is_wrong_is_one_line(installed: Installed, tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "seed.toml"
    path.write_text(content)
    assert refused(installed, "--seed", str(path)).startswith("decant: " + reason.format(path=path))


def test_a_seed_that_is_missing_is_one_line(installed: Installed) -> None:
    assert refused(installed, "--seed", "none.toml") == (
        "decant: SEED: 'none.toml' cannot be read: No such file or directory\n"
    )


# -- other hosts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])
def test_others_reach_it_only_with_tokens_or_in_so_many_words(installed: Installed, host: str) -> None:
    said = refused(installed, "--host", host)
    assert said.startswith(f"decant: HOST is '{host}', where everybody who reaches this machine could read")
    assert len(said.splitlines()) == 1


def test_an_open_server_knows_the_names_it_is_told_and_addresses(installed: Installed) -> None:
    with serving(
        installed, "--host", "0.0.0.0", "--open", "--allow-host", "decant", "--allow-host", "MQ.example"
    ) as it:

        def status(host: str, **more: str) -> int:
            return it.ask("PUT", "/topics/orders", Host=host, **more)[0]

        for host in ("localhost", "decant:8000", "mq.example", "192.0.2.7:8000", "[2001:db8::7]"):
            assert status(host) in (200, 201), host
        for host in ("pages.example", "decant.pages.example", "1.2.3.4.pages.example"):
            assert status(host) == 403, host
        assert status("decant", Origin="http://decant", **{"Sec-Fetch-Site": "same-origin"}) == 200
        assert status("decant", Origin="http://pages.example") == 403


# -- the image --------------------------------------------------------------------------------------------------------


def image_settings(**own: str) -> dict[str, str]:
    [line] = re.findall(r"^ENV (.*)$", CONTAINERFILE, re.M)
    return {**dict(pair.split("=") for pair in line.split()), "PORT": str(free_port()), **own}


def is_healthy(installed: Installed, settings: dict[str, str]) -> bool:
    [check] = re.findall(r'CMD (\["python".*\])$', CONTAINERFILE, re.M)
    command = json.loads(check)
    done = subprocess.run(
        [str(installed.bin / command[0]), *command[1:]],
        env={**environment(), "PORT": settings["PORT"]},
        capture_output=True,
        check=False,
    )
    return done.returncode == 0


def test_the_image_demands_tokens_and_prints_the_first_one_once(installed: Installed, tmp_path: Path) -> None:
    settings = image_settings(DATA=str(tmp_path / "data"))
    assert settings["ACCESS"] == "on"
    assert not is_healthy(installed, settings)
    with serving(installed, **settings) as server:
        assert is_healthy(installed, settings)
        [token] = re.findall(r"TOKEN=(dct_\S+)", server.banner)
        assert server.ask("PUT", "/topics/orders")[0] == 401
        assert server.ask("PUT", "/topics/orders", Authorization=f"Bearer {token}")[0] == 201
    with serving(installed, **settings) as server:
        assert "dct_" not in server.banner
        assert server.ask("GET", "/topics/orders", Authorization=f"Bearer {token}")[0] == 200


def test_a_variable_sets_the_first_token_which_is_not_printed(installed: Installed, tmp_path: Path) -> None:
    settings = image_settings(DATA=str(tmp_path / "data"), FIRST_TOKEN=TOKEN)
    for status in (201, 200):
        with serving(installed, **settings) as server:
            assert TOKEN not in server.banner
            assert server.ask("PUT", "/topics/orders", Authorization=f"Bearer {TOKEN}")[0] == status


def test_a_first_token_of_another_form_is_refused_without_being_shown(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRST_TOKEN", "secret")
    said = refused(installed, "--access", "on")
    assert said.startswith("decant: FIRST_TOKEN: a token must be dct_<16 of A-Z, 2-7>_")
    assert "secret" not in said


def test_the_image_runs_unprivileged_and_keeps_messages_in_a_volume() -> None:
    assert "\nUSER 10001\n" in CONTAINERFILE
    assert "\nVOLUME /data\n" in CONTAINERFILE
    assert '\nENTRYPOINT ["decant", "serve"]\n' in CONTAINERFILE


def test_compose_gives_its_server_the_name_by_which_other_services_call_it() -> None:
    text = (ROOT / "compose.yaml").read_text()
    assert "\n  decant:\n" in text
    assert "command: [--open, --allow-host, decant]" in text
    assert 'ports: ["127.0.0.1:8000:8000"]' in text
