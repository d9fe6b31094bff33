"""Pictures of the live page of the quickstart, by a headless Chromium without a network.

python experiments/looking/pictures.py runs/quickstart/live.html

Writes a picture of every view into results/, and docs/figures/live.gif and live-dark.gif, the first
picture of the README: the page as it opens, a head of the encoder switched off, and another source.
Needs Chromium and Pillow.
"""

import argparse
import io
import sys
from pathlib import Path
from urllib.parse import quote

from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from headless_chromium import Browser, headless_chromium

HERE = Path(__file__).resolve().parent
FIGURES = HERE.parents[1] / "docs" / "figures"
READY = "performance.getEntriesByName('live').length > 0 && !liveWords.textContent"
SOURCE = "Before my duck goes through the hotels this week, he repairs my quiet {} slowly."
FRAMES = "", "off=encoder.1.head.2", f"source={quote(SOURCE.format('house'))}"
MILLISECONDS, COLORS = 2600, 128
DESKTOP, PHONE = {"width": 1280, "height": 760}, {"width": 390, "height": 780, "phone": True}
DARK = DESKTOP | {"dark": True}
VIEWS = {
    "lines": ("view=lines&kind=cross&layer=2&head=0", DESKTOP),
    "all_heads": ("view=grid&kind=cross", DARK),
    "search": ("view=search", DESKTOP),
    "layers": ("view=layers&row=13", DESKTOP),
    "softmax": ("view=softmax&kind=cross&layer=2&head=4&row=13", DESKTOP),
    "effects": ("view=effects", DARK),
    "tour": ("tour=4", DESKTOP),
    "phone": ("view=matrix&kind=cross&layer=2&head=4", PHONE),
}


def picture(browser: Browser, page: Path, address: str, window: dict[str, int]) -> bytes:
    browser.open(f"{page.resolve().as_uri()}#{address}", **window)
    browser.wait_for(READY, 120)
    if "view=effects" in address:
        browser.wait_for("effectsOf(readingOf(state.run)).changes", 120)
    # Pictures of heads come as their blocks are unpacked.
    browser.evaluate("new Promise((done) => setTimeout(done, 1200))")
    return browser.screenshot()


def animation(browser: Browser, page: Path, path: Path, window: dict[str, int]) -> None:
    frames = [Image.open(io.BytesIO(picture(browser, page, each, window))).convert("RGB") for each in FRAMES]
    # One palette for all frames, so that equal areas stay equal.
    together = Image.new("RGB", (frames[0].width, sum(frame.height for frame in frames)))
    for index, frame in enumerate(frames):
        together.paste(frame, (0, frame.height * index))
    palette = together.quantize(COLORS)
    first, *others = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=others, duration=MILLISECONDS, loop=0, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    page = parser.parse_args().page
    (HERE / "results").mkdir(exist_ok=True)
    with headless_chromium() as browser:
        for name, (address, window) in VIEWS.items():
            shown = Image.open(io.BytesIO(picture(browser, page, address, window))).convert("RGB")
            shown.quantize(COLORS, dither=Image.Dither.NONE).save(HERE / "results" / f"{name}.png", optimize=True)
        animation(browser, page, FIGURES / "live.gif", DESKTOP)
        animation(browser, page, FIGURES / "live-dark.gif", DARK)
        others = {each for each in browser.requests if not each.startswith(("file:", "blob:", "data:", "about:"))}
        print(f"console: {browser.messages or 'nothing'}; requests of other files: {len(others)}")


if __name__ == "__main__":
    main()
