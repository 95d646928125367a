"""One contract for local disk and S3, and what only one of them can get wrong."""
