"""python -m lstm_ir."""

from lstm_ir.cli.start import main

if __name__ == "__main__":
    main()
