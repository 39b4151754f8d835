"""Services that find each other and call each other: registry, provider, discovery, gateway."""
