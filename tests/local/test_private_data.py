"""The folder of DATA holds messages and the signing key: nobody but its owner reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chalicelib.core.table.writes import Absent, Key, Set, Write
from local.memory.disk import FILE, RESERVE, Disk, FolderUnusable
from local.memory.store import MemoryStore
from tests.local.serving import refusal, running


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def _umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "of" / "data"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def modes(folder: Path) -> dict[str, int]:
    return {path.name: mode(path) for path in folder.iterdir()}


def test_what_is_kept_is_for_its_owner_alone(folder: Path) -> None:
    with closing(Disk(folder)) as disk:
        MemoryStore(keeper=disk).write(Write(Key("p", "a"), (Absent(("pk",)),), (Set(("n",), 1),)))
        assert mode(folder) == 0o700
        assert modes(folder) == {FILE: 0o600, f"{FILE}-wal": 0o600, RESERVE: 0o600}


def test_no_file_is_ever_wider_while_it_is_made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("what is narrowed later was open before")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(Path, "chmod", refuse)
    Disk(folder).close()
    assert modes(folder) == {FILE: 0o600, RESERVE: 0o600}


def test_an_empty_folder_that_is_wider_is_narrowed(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    Disk(folder).close()
    assert (mode(folder), modes(folder)) == (0o700, {FILE: 0o600, RESERVE: 0o600})


def test_what_an_older_version_kept_is_narrowed(folder: Path) -> None:
    Disk(folder).close()
    folder.chmod(0o755)
    (folder / FILE).chmod(0o644)
    (folder / f"{FILE}-wal").touch(0o644)
    Disk(folder).close()
    assert (mode(folder), modes(folder)) == (0o700, {FILE: 0o600, RESERVE: 0o600})


def test_a_folder_with_files_of_others_keeps_its_mode(folder: Path) -> None:
    Disk(folder).close()
    (folder / "letter.txt").touch()
    folder.chmod(0o755)
    with pytest.raises(FolderUnusable, match=r"has other files too \('letter.txt'\): name a folder of its own"):
        Disk(folder)
    assert mode(folder) == 0o755
    folder.chmod(0o700)
    Disk(folder).close()


def test_a_shared_folder_keeps_its_mode_and_gets_no_file(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o1777)
    with pytest.raises(FolderUnusable, match="is shared with other users"):
        Disk(folder)
    assert (folder.stat().st_mode & 0o7777, list(folder.iterdir())) == (0o1777, [])


def test_a_folder_of_another_user_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.mkdir(parents=True)
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(FolderUnusable, match=f"{folder} belongs to another user"):
        Disk(folder)
    assert list(folder.iterdir()) == []


def test_a_link_counts_as_the_folder_that_it_leads_to(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    link = tmp_path / "link"
    link.symlink_to(folder)
    Disk(link).close()
    assert (mode(folder), modes(folder)) == (0o700, {FILE: 0o600, RESERVE: 0o600})
    (folder / "letter.txt").touch()
    folder.chmod(0o755)
    with pytest.raises(FolderUnusable, match="has other files too"):
        Disk(link)


def test_a_link_in_place_of_the_file_is_refused(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    (tmp_path / "another").touch(0o644)
    (folder / FILE).symlink_to(tmp_path / "another")
    with pytest.raises(FolderUnusable, match="is no regular file"):
        Disk(folder)
    assert (tmp_path / "another").stat().st_size == 0


def test_a_folder_that_cannot_be_narrowed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ignored(*_: object) -> None: ...

    def forbidden(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    folder.mkdir(parents=True)
    folder.chmod(0o755)
    for chmod, reason in ((ignored, "its file system keeps no modes"), (forbidden, "Operation not permitted")):
        monkeypatch.setattr(Path, "chmod", chmod)
        with pytest.raises(FolderUnusable, match=f"cannot be narrowed: {reason}"):
            Disk(folder)


def test_the_server_says_in_one_line_why_it_does_not_start(folder: Path) -> None:
    with running(DATA=str(folder)):
        assert mode(folder) == 0o700
    (folder / "letter.txt").touch()
    folder.chmod(0o755)
    assert f"{folder} is open to other users" in refusal(PORT="0", DATA=str(folder))
