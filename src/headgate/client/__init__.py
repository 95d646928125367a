"""The light client: HTTP and JSON of the standard library and msgspec, no PyIceberg, no Spark."""

from headgate.client.connect import HeadgateClient
from headgate.client.parquet import describe_parquet
from headgate.client.pending import Pending
from headgate.client.results import Committed, LoadedTable
from headgate.client.table import TableClient
from headgate.client.transaction import Transaction

__all__ = [
    "Committed",
    "HeadgateClient",
    "LoadedTable",
    "Pending",
    "TableClient",
    "Transaction",
    "describe_parquet",
]
