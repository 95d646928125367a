"""The light client, over sockets."""
