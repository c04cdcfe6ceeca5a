"""A folder on any file system that Spark can write to: on this machine, HDFS, S3."""

from __future__ import annotations

from pyspark.sql import SparkSession


class Folder:
    """Places are relative to `root`, a path or URL."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self.root = spark, root.rstrip("/")

    def path(self, place: str) -> str:
        return f"{self.root}/{place}"

    def exists(self, place: str) -> bool:
        is_there: bool = self._files(place).exists(self._hadoop_path(place))
        return is_there

    def names(self, folder: str) -> list[str]:
        return [status.getPath().getName() for status in self._files(folder).listStatus(self._hadoop_path(folder))]

    def create(self, place: str) -> None:
        """Creates an empty file."""
        self._files(place).create(self._hadoop_path(place), True).close()

    def make(self, folder: str) -> None:
        self._files(folder).mkdirs(self._hadoop_path(folder))

    def move(self, place: str, to: str) -> None:
        files, target = self._files(to), self._hadoop_path(to)
        files.mkdirs(target.getParent())
        if not files.rename(self._hadoop_path(place), target):
            raise OSError(f"{self.path(place)} cannot be moved to {self.path(to)}")

    def delete(self, place: str) -> None:
        """Deletes the place if it exists. Raises `OSError` if it still exists afterwards."""
        if not self._files(place).delete(self._hadoop_path(place), True) and self.exists(place):
            raise OSError(f"{self.path(place)} cannot be removed")

    def _files(self, place: str):  # type: ignore[no-untyped-def]
        configuration = self._spark.sparkContext._jsc.hadoopConfiguration()
        return self._hadoop_path(place).getFileSystem(configuration)

    def _hadoop_path(self, place: str):  # type: ignore[no-untyped-def]
        return self._spark.sparkContext._jvm.org.apache.hadoop.fs.Path(self.path(place))  # type: ignore[union-attr]
