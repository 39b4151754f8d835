"""Services that find each other and call each other.

- `registry`: keeps the list of services and their providers, and publishes it.
- `provider`: registers with a registry, and answers requests.
- `discovery`: hears the lists of registries, and knows which providers offer which service.
- `gateway`: sends requests to providers.

The four do not import each other, except that a gateway is given a discovery.
"""
