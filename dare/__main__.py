"""``python -m dare``: the same as the ``dare`` command."""

from dare.cli import main

if __name__ == "__main__":
    main()
