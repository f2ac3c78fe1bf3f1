"""Tests of a group run in one process: what they share is made once."""

from __future__ import annotations

import os

import pytest


@pytest.mark.xdist_group("groups")
def test_xdist_knows_groups(request: pytest.FixtureRequest) -> None:
    """It writes them into the names of nodes, which a release of pytest may keep from it (9.2 does)."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        pytest.skip("one process runs all tests")
    assert request.node.nodeid.endswith("@groups")
