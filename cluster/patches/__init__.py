"""Sets of patches that we ship, one YAML file each."""
