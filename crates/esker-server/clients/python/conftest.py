"""The running server that the suite speaks to, and the official clients pointed at it.

ESKER_URL: address of the server, without a path. ESKER_KEY: its API key, if it has one.
The model need not be able to do anything: tests hold the server to what must be true of every answer.
"""

import json
import os
import time
import urllib.request

import anthropic
import openai
import pytest


def _environment() -> tuple[str, str]:
    url = os.environ.get("ESKER_URL")
    if not url:
        pytest.exit("ESKER_URL is not set: run clients/run.sh", returncode=2)
    return url.rstrip("/"), os.environ.get("ESKER_KEY", "none")


@pytest.fixture(scope="session")
def url() -> str:
    return _environment()[0]


@pytest.fixture(scope="session")
def key() -> str:
    return _environment()[1]


@pytest.fixture(scope="session")
def openai_client(url, key):
    # No retries: an error has to be seen.
    with openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def anthropic_client(url, key):
    with anthropic.Anthropic(base_url=url, api_key=key, max_retries=0, timeout=60) as client:
        yield client


@pytest.fixture(scope="session")
def model(openai_client) -> str:
    return openai_client.models.list().data[0].id


@pytest.fixture(scope="session")
def state(url, key):
    """What the page is told about the machine."""
    request = urllib.request.Request(f"{url}/api/state", headers={"Authorization": f"Bearer {key}"})

    def read() -> dict:
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    return read


@pytest.fixture
def all_idle(state):
    """Waits until no slot is at work; fails if one goes on."""

    def wait(seconds: float = 5.0) -> None:
        end = time.monotonic() + seconds
        while any(slot["state"] != "idle" for slot in state()["slots"]):
            assert time.monotonic() < end, "a slot still works for a client that has gone"
            time.sleep(0.05)

    return wait


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Oslo", "Kyoto", "Quito"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}


def check_weather(arguments: dict) -> None:
    """The arguments follow the schema `WEATHER`."""
    assert set(arguments) == {"city", "days"}
    assert arguments["city"] in WEATHER["properties"]["city"]["enum"]
    assert type(arguments["days"]) is int and 1 <= arguments["days"] <= 7
