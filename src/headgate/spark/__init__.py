"""Spark jobs that write data files and commit them through the service: the only package that imports pyspark."""
