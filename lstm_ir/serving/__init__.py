"""Requests of many clients in one call, the state of many clients over one module, and a server of both."""
