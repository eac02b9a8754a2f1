"""Programs that run on a node: one file each, standard library only, sent over when they are needed."""
