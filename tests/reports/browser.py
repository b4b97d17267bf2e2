"""Pages, looked at by a real browser."""

import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def shown_width(report: Path, width: int, place: Path) -> int:
    """How wide a page is in a frame of some width."""
    frame = place / "frame.html"
    probe = "<script>document.title = 'wide ' + document.documentElement.scrollWidth</script>"
    frame.write_text(report.read_text().replace("</body>", probe + "</body>"))
    outer = place / "outer.html"
    outer.write_text(
        f'<iframe id=f src="frame.html" style="border:0;width:{width}px;height:2000px"></iframe>'
        "<script>f.onload = () => { document.title = f.contentDocument.title }</script>"
    )
    assert CHROMIUM is not None
    words = "--headless --no-sandbox --disable-gpu --allow-file-access-from-files --virtual-time-budget=8000"
    done = subprocess.run(
        [CHROMIUM, *words.split(), "--dump-dom", outer.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"<title>wide (\d+)</title>", done.stdout)
    assert found, done.stdout[:500] + done.stderr[-500:]
    return int(found[1])
