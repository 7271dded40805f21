"""What the live page refuses, by name, each with the HTTP status of its answer."""

from typing import ClassVar

from towline.errors import Remedy, TowlineError


class WebRefused(TowlineError, remedy=Remedy.FIX_CALL):
    """A request that the live page does not answer."""

    status: ClassVar[int] = 400


class HostRefused(WebRefused):
    """The browser was led here under a name that is not this machine's: what DNS rebinding does."""

    host: str
    status = 421
    template = "this page is served under the names of this machine alone, and was asked for as {host!r}"
    advice = "open it as http://127.0.0.1 or http://localhost with its port, or start it with --token-file FILE"


class TokenMissing(WebRefused):
    status = 401
    template = "this page is for those who have its token"
    advice = "open it as `towline web` printed it, with ?token= at the end, or send it as `Authorization: Bearer TOKEN`"


class OtherSite(WebRefused):
    where: str
    status = 403
    template = "a page of another site asked for {where}"
    advice = "open the page itself"


class ReadOnlyPage(WebRefused):
    method: str
    status = 405
    template = "this page changes nothing: {method} is not answered"
    advice = "ask with GET; the commands of `towline` change a cluster"


class NoSuchPage(WebRefused):
    path: str
    status = 404
    template = "there is no {path} here"
    advice = "open / instead, which leads everywhere"


class BadQuestion(WebRefused):
    """A question of the page with a word that means nothing; `what` is the sentence."""

    what: str
    advice = "correct it and ask again"
    template = "{what}"


class NothingFound(WebRefused):
    what: str
    status = 404
    template = "{what} is not there"
    advice = "look at the list again; it may have gone meanwhile"


class UnreadableReport(WebRefused):
    """A file that has the members of a result, of other kinds than results have."""

    path: str
    why: str
    status = 422
    template = "the report {path} cannot be shown: {why}"
    advice = "look at the file itself, or have its result made anew"


class TooManyBrowsers(WebRefused, remedy=Remedy.RETRY):
    limit: int
    status = 503
    template = "{limit} browsers look already"
    advice = "close a page that nobody looks at, then load this one again"


class BadToken(TowlineError, remedy=Remedy.FIX_SETTINGS):
    """A file that holds no token."""

    path: str
    why: str
    template = "the token file {path} cannot be used: {why}"
    advice = "write one line of 16 or more characters into it, which nobody else can read"


class NotServed(TowlineError, remedy=Remedy.FIX_CALL):
    """The address that the page is to be served at cannot be had."""

    address: str
    why: str
    template = "the page cannot be served at {address}: {why}"
    advice = "name another with --host and --port; --port 0 takes any that is free"
