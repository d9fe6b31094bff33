"""Draws docs/figures/live.gif and live-dark.gif, the first picture of the README: the live page of the quickstart at work.

python experiments/looking/readme_picture.py runs/quickstart/live.html

Needs Chromium and Pillow. The frames: the page as it opens, a head of the encoder switched off, and another source.
"""

import io
import sys
from pathlib import Path
from urllib.parse import quote

from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from headless_chromium import headless_chromium

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "Before my duck goes through the hotels this week, he repairs my quiet {} slowly."
ADDRESSES = "", "off=encoder.1.head.2", f"source={quote(SOURCE.format('house'))}"
MILLISECONDS, WIDTH, HEIGHT, COLORS = 2600, 1280, 760, 128
READY = "performance.getEntriesByName('live').length > 0 && !liveWords.textContent"


def main(page: Path) -> None:
    with headless_chromium() as browser:
        for name, is_dark in (("live.gif", False), ("live-dark.gif", True)):
            frames = []
            for address in ADDRESSES:
                browser.open(f"{page.resolve().as_uri()}#{address}", width=WIDTH, height=HEIGHT, dark=is_dark)
                browser.wait_for(READY, 120)
                browser.evaluate("new Promise((done) => setTimeout(done, 800))")
                frames.append(Image.open(io.BytesIO(browser.screenshot())).convert("RGB"))
            # One palette for all frames, so that equal areas stay equal.
            together = Image.new("RGB", (WIDTH, HEIGHT * len(frames)))
            for index, frame in enumerate(frames):
                together.paste(frame, (0, HEIGHT * index))
            palette = together.quantize(COLORS)
            first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
            path = ROOT / "docs" / "figures" / name
            first.save(path, save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True)
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
