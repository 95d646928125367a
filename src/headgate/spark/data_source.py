"""`df.write.format("headgate")`, `spark.read.format("headgate")` and `df.writeStream.format("headgate")`.

Needs no jar and no Hadoop: files are read and written by PyArrow. `register` makes the formats known to a session.
"""

from __future__ import annotations

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.errors import BadInput
from headgate.spark.active_session import active_session, find_active
from headgate.spark.arrow_columns import check_columns
from headgate.spark.columns import spark_schema
from headgate.spark.data_source_read import Reader
from headgate.spark.data_source_write import BatchWriter, StreamWriter
from headgate.spark.demo_source import DemoSource
from headgate.spark.epochs import Sink
from headgate.spark.lake import TableState
from headgate.spark.runs import new_run
from headgate.spark.source_options import read_options

FORMAT = "headgate"
_KNOWN = "DATA_SOURCE_ALREADY_EXISTS"  # Spark's word for a format that the session knows
_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `headgate` and `headgate-demo` known as formats of this session."""
    # Spark looks a format up in the session that is active in the thread, which need not be the DataFrame's.
    active = find_active(spark)
    for session in (spark,) if active is None else (spark, active):
        with active_session(session):  # whether a name is taken is looked up there, too
            for source in (HeadgateSource, DemoSource):
                try:
                    session.dataSource.register(source)
                except AnalysisException as error:
                    if error.getCondition() != _KNOWN:
                        raise
        session.conf.set(_PUSHDOWN, "true")  # without it Spark refuses a reader that takes filters


class HeadgateSource(DataSource):
    """One table as a source and a sink of Spark. Options: `uri`, `table`, and those of `source_options`."""

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns of the table."""
        return spark_schema(self._load().schema)

    def reader(self, schema: StructType) -> Reader:
        """The rows of the table."""
        options = read_options(self.options)
        return Reader(options.table.load(all_snapshots=options.snapshot_id is not None), schema, options)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """A sink for one DataFrame. Columns are checked here, before any task runs."""
        options = read_options(self.options)
        if options.replace_partitions and not overwrite:
            raise BadInput(
                'option replace-partitions: goes with mode("overwrite")', field="replace-partitions"
            )
        if options.fold:
            raise BadInput("option fold: is for streams", field="fold")
        state = options.table.load()
        check_columns(to_arrow_schema(schema), state.schema)
        return BatchWriter(state, new_run(options.key), options, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 — Spark's name
        """A sink for a stream, which can only append."""
        options = read_options(self.options)
        if overwrite or options.replace_partitions:
            raise BadInput('outputMode: a stream into this table can only "append"', field="outputMode")
        if options.key is not None:
            raise BadInput("option key: a stream has a key for each of its batches", field="key")
        state = options.table.load()
        check_columns(to_arrow_schema(schema), state.schema)
        sink = Sink(options.table, options.branch, fold=options.fold, summary=options.summary or {})
        return StreamWriter(state, new_run(), sink)

    def _load(self) -> TableState:
        return read_options(self.options).table.load()
