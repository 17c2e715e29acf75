"""Rows of tables from files, memory, and streams, whole or in batches: columns of Arrow that have no meaning yet."""
