"""For every test: the report of proved requirements, and no limit of time for a random example."""

from hypothesis import settings

pytest_plugins = ["tests.requirement_report"]

# How long an example takes says something of the machine, and not of what is tested.
settings.register_profile("hansa", deadline=None)
settings.load_profile("hansa")
