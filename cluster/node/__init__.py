"""Machines we can run commands on. Nothing else in the package touches one."""
