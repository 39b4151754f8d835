"""For every test: the report of proved requirements."""

pytest_plugins = ["tests.requirement_report"]
