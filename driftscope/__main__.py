"""`python -m driftscope`."""

from driftscope.cli import main

if __name__ == "__main__":
    main()
