"""``python -m barnabas`` is the command ``barnabas``."""

from barnabas.app.cli import main

if __name__ == "__main__":
    main(prog_name="barnabas")
