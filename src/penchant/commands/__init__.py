"""What the commands do, as functions that take the parsed options and return plain values."""
