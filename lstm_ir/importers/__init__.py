"""Foreign models as graphs: a room for each format."""
