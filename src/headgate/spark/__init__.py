"""Spark jobs that write data files and commit them through the service: the only package that imports pyspark.

What a job needs is imported from here, `from headgate.spark import Lake, write`.
"""

from headgate.spark.exports import EXPORTS as __all__  # noqa: F401, N811 the module's own names
from headgate.spark.exports import load_export as __getattr__  # noqa: F401
