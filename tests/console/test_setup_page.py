"""The first set-up page in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from app.setup import options
from app.setup.failures import SetupError
from app.setup.place import Place
from app.setup.progress import SetupProgress, progress_page
from app.setup.steps import Step
from tests.support.browser import browsing
from tests.support.far_server import free_port, listening
from tests.support.places import ROOT

pytestmark = pytest.mark.engines

Shown = tuple[int, SetupProgress, ExitStack]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(ROOT, tmp_path / "cache", "python", data=tmp_path)


@pytest.fixture
def page(place: Place) -> Iterator[Shown]:
    """The page with one of two steps done. Its port, what it shows, and what ends it."""
    port = free_port()
    steps = [Step(name, name, lambda: "inputs", lambda log: None, 30) for name in ("One", "Two")]
    with ExitStack() as stack:
        stack.enter_context(progress_page(place, options.of_serve(["--port", str(port)])))
        progress = SetupProgress(place)
        progress.add(steps)
        with progress.step(steps[0]):
            pass
        progress.begin(steps[1])
        yield port, progress, stack


async def test_it_becomes_the_console(page: Shown, tmp_path: Path) -> None:
    port, progress, stack = page
    async with browsing(tmp_path) as visit:
        await visit.page.goto(f"http://localhost:{port}/")
        bars = visit.page.get_by_role("progressbar")
        await expect(bars.first).to_have_js_property("value", 1)
        await expect(bars.last).to_have_accessible_name("about 0:30")
        await expect(visit.page.get_by_text(re.compile(r"^Two: \d+:\d\d"))).to_be_visible()
        # A screen reader would read a running clock aloud every second.
        await expect(visit.page.get_by_role("status")).to_have_text("Two")
        found = await Axe().run(visit.page)
        assert not found.response["violations"], found.generate_report()
        await asyncio.to_thread(stack.enter_context, progress.asking())
        await expect(visit.page.get_by_role("status")).to_contain_text("asks you a question")
        await asyncio.to_thread(stack.close)
        await expect(visit.page.get_by_role("status")).to_contain_text("The server is starting")
        console = Route("/console/", lambda request: PlainTextResponse("Here is the console."))
        async with listening(Starlette(routes=[console]), port=port):
            await expect(visit.page).to_have_url(f"http://localhost:{port}/console/")
            await expect(visit.page.get_by_text("Here is the console.")).to_be_visible()


async def test_it_shows_why_set_up_stopped_and_that_it_runs_again(
    page: Shown, place: Place, tmp_path: Path
) -> None:
    port, _, stack = page
    async with browsing(tmp_path) as visit:
        await visit.page.goto(f"http://localhost:{port}/")
        error = SetupError(13, "a file could not be written", "the disk is full", "Free some space")
        stopped = asyncio.create_task(
            asyncio.to_thread(stack.__exit__, SetupError, error, error.__traceback__)
        )
        await expect(visit.page.get_by_role("status")).to_have_text(error.report())
        await stopped
        again = await asyncio.to_thread(options.of_serve, ["--port", str(port)])
        with ExitStack() as anew:
            await asyncio.to_thread(anew.enter_context, progress_page(place, again))
            await expect(visit.page.get_by_role("status")).to_have_text("Nearly there …")
            await asyncio.to_thread(anew.close)
