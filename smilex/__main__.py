"""``python -m smilex`` is the command ``smilex``."""

from smilex.cli import main

if __name__ == "__main__":
    main()
