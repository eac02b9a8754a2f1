"""From files, environment and options to one frozen tree of settings, each value with its origin."""
