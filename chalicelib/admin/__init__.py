"""Administration: creates, changes, resets and deletes topics and groups."""

from __future__ import annotations

from chalicelib.admin.deletion import Deletion
from chalicelib.admin.groups import Groups
from chalicelib.admin.topics import Topics
from chalicelib.catalogue.catalogue import Env
from chalicelib.cursors import Cursors
from chalicelib.log import Log


class Admin:
    def __init__(self, env: Env, log: Log, cursors: Cursors) -> None:
        self.deletion = Deletion(env, log.payloads)
        self.topics = Topics(env, log.offsets, self.deletion)
        self.groups = Groups(env, log, cursors, self.deletion)
