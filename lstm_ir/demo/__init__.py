"""`lstm-ir demo`: handwritten digits, and a table of the foreign ops."""
