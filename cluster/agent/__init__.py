"""Programs that are sent to a node: each is one file, standard library only, and imports nothing of ours."""
