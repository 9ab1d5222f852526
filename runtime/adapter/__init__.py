"""What training changes, as matrices and as one flat vector, and the files in which other tools keep the same."""
