"""What a loop's body computes. It knows no processor."""
