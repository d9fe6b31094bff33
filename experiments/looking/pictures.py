"""Screenshots of every view of an explorer page, by a headless Chromium without a network.

python experiments/looking/pictures.py bike.html --output=experiments/looking/results --name=bike
python experiments/looking/pictures.py live.html --output=experiments/looking/results --name=live --views=effects,changed
"""

import argparse
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))
from headless_chromium import headless_chromium

PHONE = {"width": 390, "height": 780, "phone": True}
DARK = {"dark": True}
VIEWS: dict[str, tuple[str, dict]] = {
    "matrix": ("view=matrix&kind=cross&layer=3&head=0&row=4", {}),
    "lines": ("view=lines&kind=cross&layer=4&head=2", {}),
    "grid": ("view=grid&kind=encoder", DARK),
    "search": ("view=search", {}),
    "statistics": ("view=statistics&kind=decoder", {}),
    "alignment": ("view=statistics&kind=cross&layer=2&head=4", {"height": 720}),
    "rollout": ("view=matrix&kind=decoder&measure=rollout&layer=4&palette=cividis", DARK),
    "norms": ("view=grid&kind=cross&measure=norms", {}),
    "gradient": ("view=matrix&kind=cross&measure=gradient", {}),
    "beside": ("view=lines&kind=cross&layer=4&head=0&beside=2", {}),
    "phone": ("view=lines&kind=cross&layer=4&head=0&row=3", PHONE),
}
# Of live pages, with the condition for which to wait.
READY = "performance.getEntriesByName('live').length && !liveWords.textContent"
LIVE: dict[str, tuple[str, str]] = {
    "effects": ("view=effects", "effectsOf(readingOf(state.run)).changes"),
    "neurons": ("view=neurons&kind=cross&row=1&column=1", "productsOf(readingOf(state.run)).terms"),
    "states": ("view=states&column=3", READY),
    "training": ("view=training&layer=2&head=4", READY),
    "changed": ("off=cross.2.head.4", "liveReading(CHANGED) && !liveWords.textContent"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--views", default=",".join(VIEWS), help="some of them, in this order")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with headless_chromium() as browser:
        for view in options.views.split(","):
            address, window = VIEWS[view] if view in VIEWS else (LIVE[view][0], {"height": 760})
            browser.open(f"{options.page.resolve().as_uri()}#{address}", **({"width": 1040, "height": 600} | window))
            if view in LIVE:
                browser.wait_for(LIVE[view][1], 120)
            # The pictures of the grid come as their blocks are unpacked.
            browser.evaluate("new Promise((done) => setTimeout(done, 1500))")
            (options.output / f"{options.name}-{view}.png").write_bytes(browser.screenshot())
        print(
            f"console: {browser.messages or 'nothing'}; requests: {len(set(browser.requests))}, all of the file itself"
        )


if __name__ == "__main__":
    main()
