"""Writing a bundle: its files, the phone's code as one archive, the questions it can use, its memory plan."""
