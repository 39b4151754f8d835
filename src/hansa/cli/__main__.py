"""`python -m hansa.cli` is `hansa`."""

from hansa.cli.program import main

if __name__ == "__main__":
    main()
