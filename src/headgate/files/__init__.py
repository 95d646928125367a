"""Objects: local disk and S3, with exclusive creates."""
