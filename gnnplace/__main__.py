"""`python -m gnnplace` is the command `gnnplace`."""

from gnnplace.cli.run_placed import main

if __name__ == "__main__":
    main()
