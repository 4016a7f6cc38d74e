"""``make screenshots``: two prompts on the small model, tracked, and MLflow's pages of them as pictures to look at.

Needs Chromium (Debian: ``apt-get install chromium``), and playwright of the extra ``dev``.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import mlflow
from playwright.sync_api import Page, sync_playwright

from integration_tests.tracking_server import tracking_server
from platform_plugin import LLMPredictor, autolog, spark_on_ray
from platform_plugin.demo import messages
from platform_plugin.tracking import flush

OUT = Path("build/screenshots")
PROMPTS = {
    "short prompt": "Answer this customer in one sentence: {message}",
    "with the city": "A customer in {city} writes by {channel}:\n{message}",
}


def track() -> tuple[str, list[str]]:
    """Run both prompts over the demo's messages and return the experiment and the runs."""
    mlflow.set_experiment("replies")
    autolog(log_samples=True)
    runs = []
    with spark_on_ray("screenshots", executors=1, executor_cores=2) as spark:
        frame = messages(spark)
        for name, prompt in PROMPTS.items():
            stage = LLMPredictor(promptTemplate=prompt, outputCol="reply", samplingParams={"max_tokens": 24})
            with mlflow.start_run(run_name=name) as run:
                stage.transform(frame.limit(60))
                stage.transform(frame)
            runs.append(run.info.run_id)
        flush(60)
    autolog(disable=True)
    return mlflow.get_experiment_by_name("replies").experiment_id, runs


def photograph(page: Page, url: str, name: str, wait: str) -> None:
    """Open a page, wait until a text is on it, and keep it as a picture."""
    page.goto("about:blank")  # another "#" alone would load nothing
    page.goto(url)
    page.get_by_text(wait).filter(visible=True).first.wait_for(timeout=60_000)
    page.wait_for_timeout(6000)  # charts draw themselves after their data came
    page.screenshot(path=OUT / f"{name}.png")
    sys.stdout.write(f"{OUT / name}.png\n")


def main() -> None:
    """Track, then photograph the experiment, a run, its artifacts and the comparison."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("make screenshots: no Chromium on the PATH; on Debian: apt-get install chromium")
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, tracking_server(Path(folder)) as server:
        mlflow.set_tracking_uri(server.uri)
        experiment, runs = track()
        with sync_playwright() as playwright:
            browser: Any = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1700, "height": 1000})
            base = f"{server.uri}/#/experiments/{experiment}"
            photograph(page, f"{base}/runs", "runs", "short prompt")
            # The pages of runs, rather than those of traces; it stays so.
            page.get_by_text("Model training").first.click()
            photograph(page, f"{base}/runs", "runs", "short prompt")
            photograph(page, f"{base}/runs/{runs[0]}", "run", "About this run")
            photograph(page, f"{base}/runs/{runs[0]}/model-metrics", "metrics", "Model metrics")
            photograph(page, f"{base}/runs/{runs[0]}/artifacts/reply/latency.png", "latency", "latency.png")
            photograph(page, f"{base}/runs/{runs[0]}/artifacts/reply/timeline.png", "timeline", "timeline.png")
            photograph(page, f"{base}/runs/{runs[0]}/artifacts/reply/sample.json", "sample", "sample.json")
            listed = ",".join(f'"{run}"' for run in runs)
            compare = f'{server.uri}/#/compare-runs?runs=[{listed}]&experiments=["{experiment}"]'
            photograph(page, compare, "comparison", "Comparing")
            browser.close()


if __name__ == "__main__":
    main()
