"""What a hostile upstream writes into names, messages and cards, and how one sees that it had no effect."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SHELL = ("$(touch pwned)", "`touch pwned`", "; touch pwned #", "&& touch pwned", "| touch pwned", "'; touch pwned; '")
EXPRESSIONS = ("${{ github.token }}", "${{ secrets.HF_TOKEN }}", "${{ toJSON(github) }}")
TEMPLATES = ("{{ 7 * 7191 }}", "{% include 'shared/parts.md.j2' %}", "{{ self.__init__.__globals__ }}", "{# gone #}")
MARKDOWN = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "![seen](https://evil.example/seen.png)",
    "[click](javascript:alert(1))",
    "<https://evil.example/here>",
    "https://evil.example/bare",
    "| a | b |",
    "<!-- hidden",
    "@everyone",
    "# Heading",
    "```",
    "</details>",
)
YAML = ("license: other", "!!python/object/apply:os.system ['touch pwned']", "&a [*a, *a]", "--- # end")
COMMANDS = (
    "::set-env name=PWNED::yes",
    "::add-path::/tmp/pwned",
    "::set-output name=revision::refs/heads/evil",
    "::add-mask::a",
    "::stop-commands::pwned",
    "##[set-env name=PWNED]yes",
    "##[add-mask]a",
)
OUTPUTS = ("revision=refs/heads/evil", "revision<<EOF")
ODD = ("\u202e reversed", "\u200bhidden", "a" * 300)

ONE_LINE = (*SHELL, *EXPRESSIONS, *TEMPLATES, *MARKDOWN, *YAML, *COMMANDS, *OUTPUTS, *ODD)
"""All that fits on one line."""


def _packed(parts: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The parts, joined by blanks into as few texts as fit into so many bytes each."""
    found = [""]
    for part in parts:
        longer = f"{found[-1]} {part}".strip()
        found = [*found[:-1], longer] if len(longer.encode()) <= most else [*found, part]
    return tuple(found)


IN_OUTPUT_NAMES = _packed(tuple(payload for payload in ONE_LINE if "\\" not in payload and len(payload) < 100), 190)
"""Names of outputs that hold all payloads of a line. A longer name is refused by the bot: answers lie in files."""

IN_FILE_NAMES = tuple(
    payload for payload in ONE_LINE if not set(payload) & set("/\\:") and len(payload) < 200 and payload.isprintable()
)
"""Those that a repository can hold as a file's name; a name with a colon or a slash in it is refused by the bot."""


def card() -> str:
    """A card of somebody who means ill, with the front matter of somebody who does not."""
    return "---\nlicense: mit\n---\n# A network\n\n" + "\n".join(ONE_LINE) + "\n\n" + "\n\n".join(ONE_LINE) + "\n"


def message() -> str:
    """A commit message of the same."""
    return " ".join(SHELL + EXPRESSIONS) + "\n\n" + "\n".join(COMMANDS + OUTPUTS) + "\n"


def network() -> bytes:
    """A tiny network whose names are payloads: graph, nodes, weights, an output, and metadata."""
    generator = np.random.default_rng(0)
    hostile = " ".join(ONE_LINE)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.normal(0, 0.3, shape).astype(np.float32), name)

    inner, kernel = f"hidden {hostile}", f"kernel {hostile}"
    nodes = [
        helper.make_node("Conv", ["images", kernel, "b0"], [inner], name=hostile, strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", [inner], ["g"], name=COMMANDS[0]),
        helper.make_node("Flatten", ["g"], ["f"], name=EXPRESSIONS[0]),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["logits"], name=TEMPLATES[0], transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], name=SHELL[0], axis=1),
        *(helper.make_node("Sigmoid", ["logits"], [name], name=name) for name in IN_OUTPUT_NAMES),
    ]
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 5]) for name in ("probabilities", *IN_OUTPUT_NAMES)
    ]
    graph = helper.make_graph(
        nodes,
        hostile,
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 32, 32])],
        outputs,
        [weight(kernel, 8, 3, 3, 3), weight("b0", 8), weight("w1", 5, 8), weight("b1", 5)],
        doc_string=card(),
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10, producer_name=hostile, doc_string=card()
    )
    helper.set_model_props(model, {payload: payload for payload in ONE_LINE[:20]})
    return bytes(model.SerializeToString())


class _Tags(HTMLParser):
    """Which elements a page has, and where its links and pictures lead."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.addresses: set[str] = set()
        self.text, self.code = "", 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.code += tag == "code"
        self.addresses |= {str(value) for name, value in attrs if name in ("href", "src")}
        assert not [name for name, _ in attrs if name.startswith("on")], attrs

    def handle_data(self, data: str) -> None:
        self.text += data if self.code == 0 else ""

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag == "code"


def assert_harmless_markdown(text: str, own: set[str]) -> None:
    """A text of the bot's holds none of the payloads as markup, however freely it is rendered.

    Args:
        text: Markdown, front matter taken off.
        own: Beginnings of the addresses that it may lead to.
    """
    from markdown_it import MarkdownIt

    page = _Tags()
    page.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(text))
    assert not page.tags & {"script", "iframe", "form", "object", "style", "link", "meta", "input"}, page.tags
    strange = {address for address in page.addresses if not address.startswith(tuple(own))}
    assert not strange, strange
    assert "50337" not in text, "a template in a text was worked out"
    assert not re.search(r"(?<![\w.])@everyone", page.text), "somebody is mentioned"
    assert not re.search(r"https?://evil\.example", page.text), "a bare address becomes a link"
    assert "\u202e" not in text and "\u200b" not in text


def plain_front_matter(card_text: str) -> dict[str, Any]:
    """The front matter of a card, read as YAML."""
    from ruamel.yaml import YAML as Parser

    return dict(Parser(typ="safe", pure=True).load(card_text.split("---\n")[1]))
