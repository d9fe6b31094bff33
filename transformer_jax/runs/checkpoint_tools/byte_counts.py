"""Bytes as people read them."""

UNITS = ("KiB", "MiB", "GiB", "TiB")


def bytes_text(count: int) -> str:
    """``512 B``, ``1.5 KiB``, ``20.6 MiB``."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in UNITS:
        size /= 1024
        if size < 1024 or unit == UNITS[-1]:
            break
    return f"{size:.1f} {unit}"
