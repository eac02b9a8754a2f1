"""What runs inside the server's process. Importing it does nothing: a plugin that fails to import is skipped."""
