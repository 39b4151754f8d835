"""Services that find each other and call each other.

A provider registers with a registry, registries publish lists, a discovery hears them, and a gateway sends
requests to the providers that its discovery knows: `registry`, `provider`, `discovery`, `gateway`. The four
do not import each other, except that a gateway is given a discovery.
"""
