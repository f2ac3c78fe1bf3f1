"""python -m lstm_ir."""

from lstm_ir.cli import main

if __name__ == "__main__":
    main()
