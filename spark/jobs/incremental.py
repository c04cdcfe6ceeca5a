"""Runs `messages` on every export that has arrived in a folder since the last run, in the order of their times."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

if not __package__:  # spark-submit runs this file by its path
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark import schemas
from spark.errors import BadInput
from spark.frame.job import DONE, FAILED, INTERRUPTED, Job, Outcome, Run, main
from spark.jobs import messages
from spark.reading.files import Place

ABOUT = """Runs the job messages on every export, full or incremental, that has arrived in a folder since the last run,
in the order of their times. The checkpoint records what has arrived. An export without a manifest is still being
written, and waits for the next run. An export that cannot be read is reported on stderr and does not stop the others;
each run tries it again until it can be read, or is removed."""

_MANIFEST = "manifest-summary.json"
_LISTED = "path STRING, modificationTime TIMESTAMP, length LONG, content BINARY"
"""The columns that Spark returns for each file."""
_TABLE = "arrived"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--arriving", required=True, metavar="PATH", help="folder that exports arrive in, at any depth")
    parser.add_argument("--checkpoint", metavar="PATH", help="what was there before (default: in the tables' folder)")
    parser.add_argument("--blobs", metavar="PATH", help="as of the job messages")
    parser.add_argument("--allow-quarantine", action="store_true", help="as of the job messages")


def run(run: Run) -> Outcome:
    folder = run.given.arriving
    if "://" not in folder and not Path(folder).is_dir():
        raise BadInput(f"there is no folder {folder}, in which exports could arrive")
    arriving = _Arriving(run)
    arriving.again()
    arriving.new()
    done, broken = arriving.outcomes.count(True), arriving.outcomes.count(False)
    text = f"{done} {'export' if done == 1 else 'exports'}" + (f", {broken} more that cannot be read" if broken else "")
    return Outcome(text, run.tables.path("messages"), FAILED if broken else DONE)


class _Arriving:
    """`outcomes`: for each export that was tried, whether it was read."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.outcomes: list[bool] = []

    def again(self) -> None:
        """Retries the exports that could not be read before and still exist."""
        self._run.tables.restore_all(_TABLE)
        try:
            arrived = self._run.tables.read(_TABLE, schemas.ARRIVED)
        except BadInput:  # nothing has arrived yet
            return
        for row in arrived.where("NOT is_done").orderBy("at", "export").collect():
            if (Place(row["path"]) / _MANIFEST).size() is not None:
                self._one(row["path"], row["at"])

    def new(self) -> None:
        """Reads all new exports. If it is killed, the next run begins with the same exports again, which leaves the
        finished ones unchanged."""
        given = self._run.given
        checkpoint = given.checkpoint or self._run.tables.path("_checkpoint")
        manifests = (
            self._run.spark.readStream.format("binaryFile")
            .schema(_LISTED)
            .option("pathGlobFilter", _MANIFEST)
            .option("recursiveFileLookup", "true")
            .load(given.arriving)
        )
        writing = manifests.writeStream.foreachBatch(self._batch).option("checkpointLocation", checkpoint)
        writing.trigger(availableNow=True).start().awaitTermination()

    def _batch(self, manifests: DataFrame, number: int) -> None:
        del number
        summary = F.col("content").cast("string")
        at = F.coalesce(F.get_json_object(summary, "$.exportTime"), F.get_json_object(summary, "$.exportToTime"))
        rows = manifests.select("path", F.coalesce(at, F.lit("")).alias("at")).collect()
        exports = [(row["at"], Place(_local(row["path"])).parent) for row in rows]
        for at_text, folder in sorted(exports, key=lambda export: (export[0], export[1].name)):
            self._one(folder.path, at_text)

    def _one(self, path: str, at: str) -> None:
        given = self._run.given
        more = ["--blobs", given.blobs] if given.blobs else []
        more += ["--allow-quarantine"] if given.allow_quarantine else []
        code = main(messages.JOB, ["--export", path, "--tables", given.tables, *more])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        is_done = code == DONE
        row = self._run.spark.createDataFrame([(path, at, is_done)], schemas.ARRIVED)
        self._run.tables.overwrite(row, _TABLE, path.rpartition("/")[2])
        self.outcomes.append(is_done)


def _local(path: str) -> str:
    """A path as the rest of the pipeline spells it: Spark gives files of this machine as URLs."""
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


JOB = Job("incremental", ABOUT, run, add_arguments, reads_export=False)

if __name__ == "__main__":
    sys.exit(main(JOB))
