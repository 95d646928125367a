"""The light client: HTTP and JSON of the standard library and msgspec, no PyIceberg, no Spark."""

from headgate.client.connect import HeadgateClient
from headgate.client.parquet import describe_parquet
from headgate.client.results import Committed, LoadedTable
from headgate.client.table import TableClient
from headgate.client.transaction import Transaction

__all__ = ["Committed", "HeadgateClient", "LoadedTable", "TableClient", "Transaction", "describe_parquet"]
