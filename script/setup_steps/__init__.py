"""What ``script/setup.py`` does. Standard library only: this runs before anything is installed."""
