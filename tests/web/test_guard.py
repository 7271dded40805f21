"""Who may ask the page, and what every answer says of itself."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from tests.requirements import need
from tests.web.asked import MadeUp
from towline.web.app import Parts, app_of, page_files
from towline.web.guard import COOKIE
from towline.web.hub import Hub
from towline.web.questions import Questions
from towline.web.reports import Reports

TOKEN = "a token of the tests"
BASE = "http://127.0.0.1:8088"


def page(token: str | None = None, base: str = BASE) -> TestClient:
    parts = Parts(Hub(MadeUp()), Questions(dict), Reports(None))
    return TestClient(app_of(parts, token), base_url=base, follow_redirects=False)


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "127.0.0.2", "localhost", "LOCALHOST:1", "[::1]:8088"])
def test_without_a_token_the_page_has_the_names_of_this_machine(host: str) -> None:
    assert page().get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8088", "localhost.evil.example", "10.0.0.1"])
@pytest.mark.parametrize("path", ["/", "/main.js", "/api/live", "/api/messages?by=id&value=x"])
def test_a_name_of_a_stranger_that_leads_here_is_refused(host: str, path: str) -> None:
    answer = page().get(path, headers={"host": host})
    assert answer.status_code == 421
    assert answer.json()["error"] == "HostRefused"
    assert host in answer.json()["sentence"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"])
def test_nothing_but_get_is_answered(method: str) -> None:
    answer = page().request(method, "/api/reports")
    assert answer.status_code == 405
    if method != "HEAD":
        assert answer.json()["error"] == "ReadOnlyPage"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_refused_and_a_link_to_the_page_is_not(site: str) -> None:
    client, headers = page(), {"sec-fetch-site": site}
    assert client.get("/api/reports", headers=headers).json()["error"] == "OtherSite"
    assert client.get("/", headers=headers).status_code == 200


def test_every_answer_forbids_scripts_and_styles_that_are_not_files_of_the_page() -> None:
    client = page()
    answers = [
        client.get("/"),
        client.get("/none"),
        client.post("/"),
        client.get("/", headers={"host": "evil.example"}),
    ]
    assert [answer.status_code for answer in answers] == [200, 404, 405, 421]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in answer.headers


class TestWithAToken:
    def test_nobody_is_answered_without_it(self) -> None:
        for path in ("/", "/main.js", "/api/reports", "/api/live"):
            answer = page(TOKEN).get(path)
            assert answer.status_code == 401
            assert answer.json()["error"] == "TokenMissing"

    @pytest.mark.parametrize("given", ["", "a token", "a token of the testz", "ä", "\udcff"])
    def test_another_one_is_not_taken(self, given: str) -> None:
        client = page(TOKEN)
        assert client.get("/", params={"token": given.encode("utf-8", "surrogatepass")}).status_code == 401
        assert (
            client.get("/", headers={"authorization": b"Bearer " + given.encode("utf-8", "replace")}).status_code == 401
        )

    def test_a_browser_shows_it_once_and_has_a_cookie_of_this_page_alone(self) -> None:
        client = page(TOKEN)
        answer = client.get("/", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie, "a link in another site's page leads here by way of a 303"
        assert cookie.startswith(COOKIE)
        assert TOKEN not in cookie
        assert client.get("/").status_code == 200
        assert client.get("/api/reports").status_code == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_a_link_of_another_site_opens_the_page_and_that_site_asks_for_nothing_with_the_cookie(
        self, site: str
    ) -> None:
        client, headers = page(TOKEN), {"sec-fetch-site": site}
        assert client.get("/", params={"token": TOKEN}, headers=headers).status_code == 303
        assert client.get("/", headers=headers).status_code == 200
        for path in ("/api/reports", "/api/live", "/api/messages?by=id&value=x", "/api/body?id=x", "/main.js"):
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.json()["error"]) == (403, "OtherSite"), path

    @pytest.mark.parametrize("other", ['{"a": 1}', "a[b]=1", "no value", 'b="open', "ü=1", "x=a b,c"])
    def test_the_cookie_is_found_beside_cookies_of_others_that_no_standard_allows(self, other: str) -> None:
        made = page(TOKEN).get("/", params={"token": TOKEN}).headers["set-cookie"].partition(";")[0]
        for given in (f"{other}; {made}", f"{made}; {other}"):
            assert page(TOKEN).get("/", headers={"cookie": given.encode()}).status_code == 200

    def test_a_cookie_of_another_page_opens_nothing(self) -> None:
        other = page("another token of the tests")
        made = other.get("/", params={"token": "another token of the tests"}).headers["set-cookie"].partition(";")[0]
        assert page(TOKEN).get("/", headers={"cookie": made}).status_code == 401

    def test_a_program_sends_it_as_a_header_and_not_in_the_address_of_a_question(self) -> None:
        client = page(TOKEN)
        assert client.get("/api/reports", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.get("/api/reports", params={"token": TOKEN}).status_code == 401

    def test_the_page_has_any_name(self) -> None:
        answer = page(TOKEN, "http://towline.example").get("/", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 200


class Inline(HTMLParser):
    """Notes what a policy without inline scripts and styles would forbid."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [str(given[name]) for name in ("src", "href") if given.get(name)]
        if tag == "style" or (tag == "script" and "src" not in given):
            self.found.append(tag)
        self.found += [f"{tag} {name}" for name in given if name == "style" or name.startswith("on")]


def test_the_page_has_nothing_inline_and_loads_its_own_files_alone() -> None:
    seen, files = Inline(), page_files()
    seen.feed(files["/"][0].decode())
    assert not seen.found
    assert {f"/{link}" for link in seen.links if not link.startswith("#")} <= files.keys()
    for path, (body, _) in files.items():
        assert not re.search(rb"https?://(?!www\.w3\.org/)", body), path


def test_no_script_of_the_page_makes_markup_or_code_of_text() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|setAttribute\(.style"
    )
    scripts = {path: body.decode() for path, (body, kind) in page_files().items() if kind == "text/javascript"}
    assert len(scripts) >= 10
    assert not [path for path, body in scripts.items() if re.search(forbidden, body)]


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("", [""]),
        ("#/", [""]),
        ("#/topics/a%2Fb", ["topics", "a/b"]),
        ("#/%", ["%"]),
        ("#/topics/100%/b%20c", ["topics", "100%", "b c"]),
        ("#/topics/%ff", ["topics", "%ff"]),
    ],
)
def test_a_fragment_that_a_person_typed_leads_somewhere(fragment: str, words: list[str]) -> None:
    program = shutil.which("node")
    need({} if program else {"node": "Node.js, which runs a script of the page, is not installed"})
    assert program is not None
    asked = f"console.log(JSON.stringify(wordsOf({json.dumps(fragment)})));"
    script = page_files()["/dom.js"][0].decode() + asked
    command = [program, "--input-type=module", "-"]
    said = subprocess.run(command, input=script, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(said) == words
