"""The command line: options become a settings layer, verbs call one use case each."""
