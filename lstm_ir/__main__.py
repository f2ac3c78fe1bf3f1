"""python -m lstm_ir."""

from lstm_ir.cli.group import main

if __name__ == "__main__":
    main()
