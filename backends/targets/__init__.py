"""What can be compiled for: words, processors, flags."""
