"""``python -m platform_plugin``: the command line, where its script is not on the PATH."""

from platform_plugin.cli import main

main()
