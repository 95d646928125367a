"""The pages of docs/ say what is true."""
