"""The cards: each figure in its place, nothing untraceable, nothing from upstream that acts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from markdown_it import MarkdownIt
from releases import ROOT, fused_release, release_of, seed_release, template

from bot.card.card import (
    RenderedCard,
    Review,
    render_card,
    render_comment,
    render_pull_request,
    render_summary,
)
from bot.card.explain import explain
from bot.card.lint import loose_digits
from bot.card.markdown import plain_text
from bot.card.merge import Conflict, Merged
from bot.card.published import Published
from bot.errors import RecipeError
from bot.recipe import load_recipe, recipe_names
from bot.records import FileRecord, Release

SHARED = "{% extends 'shared/card.md.j2' %}"


def card_of(release: Release) -> RenderedCard:
    return render_card(release, template=template(release.recipe), template_name=f"{release.recipe}/card.md.j2")


def summary_of(release: Release) -> str:
    return render_summary(Review(release, card_of(release).text))


def block(release: Release, text: str) -> str:
    """What a recipe's own words come to, in place of its summary."""
    own = SHARED + "{% block summary %}" + text + "{% endblock %}"
    body = render_card(release, template=own, template_name="own/card.md.j2").text.split("\n# ", 1)[1]
    return body.split("\n\n", 1)[1].split("\n\n## Files")[0].split("\n\n**Built")[0]


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


SEED_SAYS = [
    # What the seed's card says, and how this card says it; None of these figures is in a template.
    "`faceage-dino-fp16.onnx`",
    "| 611,872,451 | `b2e804783e197066cd8cf65a7cbc39a0579ea87c34660abd8ca942df8672cf70` |",
    "| 1,219,158,136 | `b0fefb4473978dae8128803d4577de2586f974198991f2c6252a5609dffb3233` |",
    "`config.json`, `preprocessor_config.json`, `modeling_faceage_dino.py` and `configuration_faceage_dino.py`",
    "`face`: float32, batch × 3 × 224 × 224.",
    "Resize to 224 × 224 pixels, bicubic, whatever the aspect ratio.",
    "by 1/255, subtract the mean (0.485, 0.456, 0.406), divide by the standard deviation",
    "standard deviation (0.229, 0.224, 0.225)",
    "by 0.1 · (x1 − x0) on the left and on the right, by 0.1 · (y1 − y0) above and below",
    "`age_logits`: float32, batch × 100.",
    "`age = sum(sigmoid(age_logits[k]) for k in 0..99)`, a continuous value up to 100.",
    "`gender_logits`: float32, batch × 2.",
    "0 is female, 1 is male",
    "> MAE 3.56 years on LAGENDA (84k faces), 1.55 on ages 0 to 12, 2.85 on 13 to 17",
    "> without the padding: 3.76 years",
    "99.5% of the 304M parameters are fp16",
    "1.57e5 here, and the largest number in fp16 is 65,504",
    "takes out 118 casts up and 47 casts down",
    "all 50 LayerNormalization nodes and all 24 Softmax nodes; the 192 MatMul nodes are fp16",
    "`LayerNormalization`, `Softmax`, `Add` and `Mul`",
    "on 200 samples of [CUHK-CSE/wider_face]",
    "faces of at least 32 pixels",
    "| mean absolute difference, age | 0.012 years |",
    "| largest absolute difference, age | 0.074 years |",
    "| same decision, gender | 200 of 200 |",
    "| NaN or infinite values | none |",
    "`onnx` 1.22.0, `onnxconverter-common` 1.16.0, `onnxruntime` 1.29.0, `python` 3.11",
    "Opset 18, IR 10, one file without external data",
    "**Built with DINOv3.** The [DINOv3 License](DINOv3_LICENSE.md)",
    "`faceage-dino-fp16.onnx` stays here as it is, byte for byte",
    "[apache-2.0](LICENSE), as the source declares",
    "The data that the source was trained on is the source's own, and none of it is here.",
]


FUSED_SAYS = [
    # What the seed's card says of its second file.
    "this repository holds two converted files",
    "| 611,187,743 | `30c5531f17a1faa1f27891cb8af3e12f1fb14ea5f456192d0f1afcc8c9105ba0` |",
    "is the same network with the same weights, written anew with fused operators",
    "it is 2.6 to 3.9 times as fast as `faceage-dino-fp16.onnx`",
    "All of them take the same input and give the same outputs.",
    "A run may take any number of rows.",
    "The residual stream is carried at 1/8 of its size, and the epsilon of each LayerNorm at 1/64",
    "The massive activation, on channel 757, peaks at 1.95e4 then instead of 1.56e5, within fp16's 65,504",
    "The layer scales, times the same 1/8, are folded into weights and biases of the output projections.",
    "Attention is one `MultiHeadAttention` per block, 24 in all, in fp16.",
    "worked out once in float64 from the source's angles and are constants in fp16",
    "The class token and the four register tokens",
    "so that one operator serves all 201 tokens",
    "are one `SkipLayerNormalization` in fp32",
    "are one `BiasGelu` each",
    "The bias of the values is folded into that of the output projection",
    "The last block works out queries and feed-forward layer for the class token alone",
    "Every Reshape has a constant shape that leaves only the batch open",
    "These operators belong to the domain `com.microsoft`. The graph has 444 nodes, 96 of them casts.",
    "| mean absolute difference, age | 0.0036 years | 0.0086 years |",
    "against `faceage-dino-fp16.onnx`, on NVIDIA GeForce RTX 4090, onnxruntime-gpu 1.22.0, CUDA provider",
    "| 1 | 13.2 | 3.4 | 3.88 |",
    "| 5 | 19.8 | 6.8 | 2.91 |",
    "| 10 | 31.6 | 12.1 | 2.61 |",
    "Opset 18, `com.microsoft` opset 1, IR 10, one file without external data; ONNX Runtime 1.22 or later reads it.",
    "`faceage-dino-fp16.onnx` stays here as it is, byte for byte",
    "It permits use, modification and redistribution, also for commercial ends",
]


@pytest.fixture(scope="module")
def fused_card() -> str:
    return flat(card_of(fused_release()).text)


@pytest.mark.parametrize("statement", [*FUSED_SAYS, *SEED_SAYS])
def test_the_fused_file_is_told_beside_the_first_one(fused_card: str, statement: str) -> None:
    assert statement in fused_card


def test_the_card_is_silent_where_the_rebuild_did_less(fused: Release) -> None:
    step = fused.artifacts[1].steps[0].model_copy(update={"report": {"folded": ["value_bias"]}})
    census = fused.artifacts[1].census.model_copy(update={"by_op": {"MatMul": 145}})
    artifact = fused.artifacts[1].model_copy(update={"steps": (step,), "census": census})
    text = flat(card_of(fused.model_copy(update={"artifacts": (fused.artifacts[0], artifact)})).text)
    assert "## The fused rebuild" in text and "The bias of the values is folded" in text
    section = text[text.index("## The fused rebuild") : text.index("## Accuracy")]
    for word in (
        "1/8",
        "757",
        "1.95e4",
        "MultiHeadAttention",
        "float64",
        "register",
        "BiasGelu",
        "last block",
        "Reshape",
    ):
        assert word not in section


def test_the_card_tells_a_form_whose_stream_is_half_precision(fused: Release) -> None:
    before = fused.artifacts[1].steps[0]
    form = {"residual": "fp16", "residual_every": 4, "attention": "packed", "norms_compensated": True}
    step = before.model_copy(update={"report": {**before.report, **form, "calibrated": True, "calibrated_on": 16}})
    artifact = fused.artifacts[1].model_copy(update={"steps": (step,)})
    text = flat(card_of(fused.model_copy(update={"artifacts": (fused.artifacts[0], artifact)})).text)
    for statement in (
        "are one `SkipLayerNormalization` in fp16, the last in fp32, 48 in all.",
        "What rounding the norms to fp16 changes is made good in the matrices that read them.",
        "The stream is rounded to fp16 once in four blocks",
        "is made good in the bias behind it, as measured on 16 samples.",
        "no CPU kernel does, so that this file runs on CUDA only",
        "The residual stream and all LayerNorms but the last are fp16 too; the input and the outputs are fp32.",
    ):
        assert statement in text
    assert "`SkipLayerNormalization` in fp32" not in text


@pytest.fixture(scope="module")
def seeds_card() -> RenderedCard:
    return card_of(seed_release())


@pytest.mark.parametrize("statement", SEED_SAYS)
def test_the_seeds_figures_stand_in_their_places(seeds_card: RenderedCard, statement: str) -> None:
    assert statement in flat(seeds_card.text)


@pytest.mark.parametrize(
    ("text", "field", "kind"),
    [
        ("611,872,451", "artifacts[fp16].bytes", "recorded"),
        ("0.012", "measurements[fp16 age.mean_absolute cpu].value", "measured"),
        ("0.1", "declared.inputs.face.image.crop_padding", "declared"),
        ("65,504", "constants.fp16_largest", "constant"),
        ("118", "artifacts[fp16].steps[drop_cast_round_trips].report.up_casts_removed", "recorded"),
        ("without the padding: 3.76 years", "declared.card.reported[1]", "reported"),
        ("50.2%", "artifacts[fp16].bytes / source.files.network.bytes", "recorded"),
        ("one", "count of artifacts", "recorded"),
        ("1.22.0", "artifacts[fp16].built_with.onnx", "recorded"),
    ],
)
def test_every_figure_says_where_it_comes_from(seeds_card: RenderedCard, text: str, field: str, kind: str) -> None:
    assert (text, field, kind) in [(each.text, each.field, each.kind) for each in seeds_card.numbers]


@pytest.mark.parametrize("name", ["seed", "fused", "two_networks", "withheld"])
def test_no_figure_is_left_out_of_the_list(name: str, request: pytest.FixtureRequest) -> None:
    check_all_figures_are_listed(card_of(request.getfixturevalue(name)))


@pytest.mark.parametrize("name", recipe_names(ROOT / "recipes"))
def test_no_figure_on_the_card_of_any_recipe_is_left_out_of_the_list(name: str) -> None:
    release = release_of(load_recipe(ROOT / "recipes" / name))
    card = card_of(release)
    check_all_figures_are_listed(card)
    assert explain(release, {"README.md": card.numbers})


def check_all_figures_are_listed(card: RenderedCard) -> None:
    """Takes the listed figures out of the card, in their order: no digit may be left but in names."""
    position = 0
    for number in card.numbers:
        assert number.field
        wrapped = re.sub(r"(\\ )+", r"\\s+(?:> )?", re.escape(number.text))  # A line may end between its words.
        match = re.compile(rf"(?<![A-Za-z0-9]){wrapped}").search(card.text, position)
        assert match, number
        assert list(loose_digits(card.text[position : match.start()])) == []
        position = match.end()
    assert list(loose_digits(card.text[position:])) == []


@pytest.mark.parametrize("name", ["seed", "two_networks", "withheld"])
def test_two_renders_are_the_same_bytes(name: str, request: pytest.FixtureRequest) -> None:
    release = request.getfixturevalue(name)
    again = Release.from_json(release.to_json())
    assert card_of(release).text == card_of(again).text
    assert render_pull_request(release) == render_pull_request(again)
    assert summary_of(release) == summary_of(again)


def test_no_figure_of_the_record_is_in_the_template(seed: Release) -> None:
    """Another record gives another card: change every number of the record, and the old ones are gone."""

    def shifted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shifted(item) for key, item in value.items() if key != "schema_version"}
        if isinstance(value, list):
            return [shifted(item) for item in value]
        return value + 1 if isinstance(value, int | float) and not isinstance(value, bool) else value

    text = flat(card_of(Release.model_validate(shifted(seed.to_plain()))).text)
    for figure in ("611,872,451", "1,219,158,136", "0.485", "0.074", "224 × 224", "118 casts", "47 casts", "0..99"):
        assert figure not in text
    for figure in ("611,872,452", "1.485", "225 × 225", "119 casts", "48 casts", "0..100", "| 1.1 years |"):
        assert figure in text


def test_two_networks_have_their_own_inputs_outputs_and_values(two_networks: Release) -> None:
    text = flat(card_of(two_networks).text)
    assert "# Age and gender, ONNX fp16" in text
    assert "**Input** `images` of `age-v1-fp16.onnx`: float32, N × 3 × 64 × 64. A run may take any" in text
    assert "number of rows. One picture per row, BGR" in text
    assert "where the classes stand for 0.25, 1, 2, …, 80 years" in text
    assert "| same decision, gender | 68 of 69 | 68 of 69 |" in text
    assert "| CPU provider | true fp16, emulated |" in text
    assert text.count("```python") == 1
    assert text.index("64 × 64") < text.index("32 × 32")


def test_sections_without_content_are_not_there(seed: Release) -> None:
    bare = seed.model_copy(update={"measurements": (), "verdicts": (), "copies": (), "samples": ()})
    text = card_of(bare).text
    for heading in ("## Accuracy", "## Speed", "`source/`", "fused"):
        assert heading not in text
    assert "here, and the largest number" not in text


def test_withheld_files_are_named_with_the_reason_and_nothing_else(withheld: Release) -> None:
    text = flat(card_of(withheld).text)
    assert "- `faceage-int8.onnx`: age.max_absolute on cpu is 0.3 year; the limit is ≤ 0.1 year." in text
    assert text.count("faceage-int8.onnx") == 1
    title, body = render_pull_request(withheld)
    assert "faceage-int8.onnx" not in title
    assert "**Part of it is withheld**: `int8` did not pass" in flat(body)
    assert "| **failed** |" in body


def test_nothing_published(withheld: Release) -> None:
    release = withheld.model_copy(update={"withheld": ("fp16", "int8")})
    assert "every one was withheld" in card_of(release).text
    assert "**Nothing to publish**" in summary_of(release)


def test_random_weights_are_shouted_first_and_linked_to_nobody(seed: Release) -> None:
    release = seed.model_copy(update={"random_weights": True})
    title, body = render_pull_request(release)
    for text in (card_of(release).text.split("\n# faceage-onnx\n")[1], body, summary_of(release)):
        assert "**⚠ Random weights: for testing only, do not use.**" in text[:400]
        assert "https://huggingface.co" not in text
    assert title.startswith("[random weights] ")
    assert "trained on crops of faces" not in card_of(release).text


def test_pull_request_has_every_file_figure_and_gate(seed: Release) -> None:
    title, body = render_pull_request(seed)
    assert title == f"faceage-dino-fp16.onnx from TrungTran/faceage_ClientScan at {seed.source.commit[:12]}"
    for piece in ("611,872,451", "b2e80478", "0.012 years", "at most 0.02 years", "1.13", "valid ONNX", "200 of 200"):
        assert piece in body


def test_a_pin_is_json_that_a_consumer_can_read(two_networks: Release) -> None:
    pins = re.search(r"```json\n(.*?)```", card_of(two_networks).text, re.DOTALL)
    assert pins
    first, second = map(json.loads, pins[1].splitlines())
    assert first["file"] == "age-v1-fp16.onnx"
    assert second["sha256"] == two_networks.artifacts[1].sha256


# -- what a recipe's author may get wrong ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{{ release.bits }}", "has no attribute 'bits'"),
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ 42 }}", "comes from no field: '42'"),
        ("{{ '42 percent' }}", "comes from no field: '42'"),
        ("{{ release.artifacts | length }}", "No filter named 'length'"),
        ("{{ (release.artifacts | first).bytes * 2 }}", "unsupported operand"),
        ("{% for a in release.artifacts %}{{ loop.index }}{% endfor %}", "1 is not something that a card can print"),
        ("{{ release.artifacts }}", "is not something that a card can print"),
        ("{{ release.declared.card.title }}", "None is not something that a card can print"),
        ("{{ ''.__class__ }}", "unsafe"),
        ("{{ release._record }}", "_record"),
        ("{{ release.target.raw.__class__.__mro__ }}", "unsafe"),
        ("{{ release.to_json() }}", "has no attribute 'to_json'"),
        ("{% include 'shared/../pyproject.toml' %}", "there is no template"),
        ("{{ 'x' | safe }}", "No filter named 'safe'"),
    ],
)
def test_mistakes_are_refused_with_their_line(seed: Release, text: str, complaint: str) -> None:
    with pytest.raises(RecipeError) as caught:
        block(seed, f"\nfirst line\n{text}\n")
    assert complaint in caught.value.what
    assert "own/card.md.j2" in caught.value.where


def test_the_line_of_a_mistake_in_a_loop(seed: Release) -> None:
    text = (
        SHARED + "\n{% block summary %}\n{% for a in release.artifacts %}\n{{ a.nowhere }}\n{% endfor %}{% endblock %}"
    )
    with pytest.raises(RecipeError) as caught:
        render_card(seed, template=text, template_name="recipes/own/card.md.j2")
    assert caught.value.where == "recipes/own/card.md.j2:4"


def test_a_number_typed_into_the_recipes_card(seed: Release) -> None:
    with pytest.raises(RecipeError, match=r"card.md.j2:1: the number in '2.6' is typed by hand"):
        block(seed, "It is 2.6 times as fast.")


# -- what upstream may try ------------------------------------------------------------------------------------------

EVIL = [
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](https://evil.example/x.png)",
    "{{ release.identity }}{% raw %}",
    "**bold** @octocat #1 https://evil.example",
    "a | b | c\n\n# heading\n\n---\nlicense: mit\n---\n",
    "`` ` `` ```\n```",
    "\u202eevil\u2066",
    "\ue000\U000f0000\ue001 99",
]


def poisoned(value: Any, evil: str, names: frozenset[str]) -> Any:
    """The record with every text replaced, but for those that decide about the structure."""
    if isinstance(value, dict):
        return {key: item if key in names else poisoned(item, evil, names) for key, item in value.items()}
    if isinstance(value, list):
        return [poisoned(item, evil, names) for item in value]
    return evil if isinstance(value, str) else value


STRUCTURE = frozenset(
    re.findall(
        r"\w+",
        "schema_version sha256 identity status comparison decode from of metric resample color artifact against name "
        "made_from repo_type subject rule withheld op keep samples_digest commit language pipeline_tag library_name "
        "base_model_relation on_change",
    )
)


def comment_of(bad: Release) -> str:
    """A comment that compares one hostile release with another, whose card was edited by hostile hands."""
    evil = bad.source.repo
    theirs = card_of(bad).text.replace("## Pinning", evil)
    before = Published(
        bad.model_copy(update={"measurements": bad.measurements[:1], "licenses": (), "runtime": evil + evil}),
        card=theirs,
        rendered=card_of(bad).text,
        files=(FileRecord(path=evil, bytes=1, sha256="00" * 32),),
    )
    files = (FileRecord(path="x" + evil, bytes=2, sha256="11" * 32), FileRecord(path=evil, bytes=3, sha256="22" * 32))
    merged = Merged(theirs, (Conflict(evil, evil, f"{evil}\n{evil}"), Conflict("", evil, "")), 1)
    return render_comment(Review(bad, theirs, files, (), before, merged))


@pytest.mark.parametrize(
    ("name", "evil"),
    [*(("seed", evil) for evil in EVIL), ("two_networks", " ".join(EVIL)), ("withheld", "\n".join(EVIL))],
)
def test_hostile_text_is_inert_everywhere(name: str, evil: str, request: pytest.FixtureRequest) -> None:
    release = request.getfixturevalue(name)
    plain = poisoned(release.to_plain(), evil, STRUCTURE)
    plain["recipe"] = release.recipe
    bad = Release.model_validate(plain)
    harmless = card_of(
        Release.model_validate({**poisoned(release.to_plain(), "x", STRUCTURE), "recipe": release.recipe})
    )
    markdown = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])

    def shape(text: str) -> list[str]:
        body = text.split("---\n", 2)[2] if text.startswith("---\n") else text
        return [token.type for token in markdown.parse(body)]

    card = card_of(bad)
    assert shape(card.text) == shape(harmless.text)
    title, body = render_pull_request(bad)
    assert title == plain_text(title)
    for text in (card.text, body, summary_of(bad), comment_of(bad)):
        whole = text.split("---\n", 2)[2] if text.startswith("---\n") else text
        body = re.sub(r"^(```+).*?^\1$", "", whole, flags=re.MULTILINE | re.DOTALL)
        page = markdown.render(body)
        assert "<script" not in page
        for address in re.findall(r'<img [^>]*?src="([^"]*)"', page):
            assert re.fullmatch(r"plots/(errors|latency|size)[A-Za-z0-9_-]*\.svg", address)
        assert "<strong>bold" not in page
        assert 'href="javascript' not in page and 'href="https://evil' not in page
        assert "\u202e" not in text and "\u2066" not in text and "\ue000" not in text
        assert not re.search(r"@octocat", body)
