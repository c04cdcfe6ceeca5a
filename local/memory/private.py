"""A folder that holds secrets is open to its owner alone: its mode is 0700, that of files in it 0600.

Modes are judged and changed by one rule: only what is this user's own is narrowed, and a folder only while nothing of
others lies in it. So a home folder or /tmp that was named by mistake is refused, and never closed to its users.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class FolderUnusable(Exception):
    """The reason, in one line."""


def demand_private_folder(folder: Path, own: Collection[str]) -> None:
    """Makes the folder if it is missing, narrows one that is wider. A link counts as the folder that it leads to.
    `own`: the names of the files that may be in a folder that is narrowed. Raises `FolderUnusable`, `OSError`."""
    folder.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    about = folder.stat()
    _demand_own(folder, about)
    if not about.st_mode & _OTHERS:
        return
    if about.st_mode & stat.S_ISVTX:
        raise FolderUnusable(f"{folder} is shared with other users (its mode has the sticky bit): name another folder")
    if others := sorted({path.name for path in folder.iterdir()} - set(own)):
        reason = f"is open to other users, and is not narrowed since it has other files too ({others[0]!r})"
        raise FolderUnusable(f"{folder} {reason}: name a folder of its own, or chmod it to 700")
    _narrow(folder, about)


def demand_private_file(path: Path, is_made: bool = False) -> None:
    """Narrows a file that is wider. `is_made`: makes it, empty, if it is missing; it is private from the first moment.
    Call it when the folder is private: until then, others may change what a name stands for. It opens no file that is
    there: to close one again would end the locks that this process has on it. Raises `FolderUnusable`, `OSError`."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        if is_made:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE))
        return
    if not stat.S_ISREG(about.st_mode):
        raise FolderUnusable(f"{path} is no regular file: a link or a folder has its name")
    _demand_own(path, about)
    if about.st_mode & _OTHERS:
        _narrow(path, about)


def _demand_own(path: Path, about: os.stat_result) -> None:
    if about.st_uid != os.geteuid():
        raise FolderUnusable(f"{path} belongs to another user (uid {about.st_uid}), who could read what is kept there")


def _narrow(path: Path, about: os.stat_result) -> None:
    """Some file systems have no modes, and ignore a change of them."""
    wanted = stat.S_IMODE(about.st_mode) & ~_OTHERS
    try:
        path.chmod(wanted)
    except OSError as error:
        raise FolderUnusable(f"{path} is open to other users and cannot be narrowed: {error.strerror}") from error
    if path.stat().st_mode & _OTHERS:
        raise FolderUnusable(f"{path} is open to other users and cannot be narrowed: its file system keeps no modes")
