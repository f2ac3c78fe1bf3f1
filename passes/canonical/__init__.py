"""One form for graphs that mean the same: numbers, shapes, scans."""
