"""Numbers for people: three significant digits and a unit."""

KIB = 1024
MIB = 1024 * 1024


def three(value: float) -> str:
    """Three significant digits, or all before the point."""
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def rate_text(rate_per_s: float) -> str:
    """812/s, 43.9 k/s, 2.31 M/s."""
    for limit, unit in ((1e6, "M/s"), (1e3, "k/s")):
        if rate_per_s >= limit * 0.9995:
            return f"{three(rate_per_s / limit)} {unit}"
    return f"{rate_per_s:.0f}/s"


def time_text(time_us: float) -> str:
    """98.7 us, 1.25 ms, 3.10 s."""
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if time_us >= limit * 0.9995:
            return f"{three(time_us / limit)} {unit}"
    return f"{three(time_us)} us"


def bytes_text(size_bytes: float) -> str:
    """812 B, 6.12 KiB, 1.05 MiB."""
    for limit, unit in ((MIB, "MiB"), (KIB, "KiB")):
        if size_bytes >= limit * 0.9995:
            return f"{three(size_bytes / limit)} {unit}"
    return f"{size_bytes:.0f} B"


def share_text(share: float) -> str:
    """4.2%."""
    return f"{share:.1%}"


def count_text(count: float) -> str:
    """1,000."""
    return f"{count:,.0f}"
