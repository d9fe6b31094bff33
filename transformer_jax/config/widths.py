"""The widths of batches of sentences to decode: few, because each is a program to compile."""

FEWEST_COLUMNS = 16
FEWEST_STEPPED = 64


def one_of_two_widths(length: int, longest: int) -> int:
    """64 where that holds ``length`` tokens, else what holds ``longest``: for devices where programs take long to compile."""
    return padded_width(min(longest, FEWEST_STEPPED) if length <= FEWEST_STEPPED else longest)


def padded_width(length: int, longest: int | None = None) -> int:
    """Returns the smallest of the widths 16, 32, 64, 96, 128, 192, 256, ... that holds ``length`` tokens.

    Of a model that reads at most ``longest`` tokens it is no more than that, but never less than ``length``.
    """
    power = max(1 << (max(length, 1) - 1).bit_length(), FEWEST_COLUMNS)
    width = power * 3 // 4 if power > FEWEST_STEPPED and length <= power * 3 // 4 else power
    return width if longest is None else max(min(width, longest), length)
