"""The recurrent ops that every foreign op becomes, with their gradient ops."""
