"""Networks of our own give what the libraries give in which they were trained, from the checkpoints as they are."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import make_random_checkpoint
import pytest
import torch

from bot.errors import UpstreamError
from bot.graph.export import emotieffnet, emotion2vec, farl
from bot.graph.export.interface import Files


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    """A module in eval mode whose every weight and statistic is its own."""
    torch.manual_seed(0)
    make_random_checkpoint.filled(module)
    return module.eval()


def load(architecture: Any, saved: Any, path: Path, **parameters: Any) -> Any:
    torch.save(saved, path)
    kind = architecture.ARCHITECTURE.parameters
    return architecture.load(Files({"weights": path}), kind(**parameters)).module


def openai_names(state: dict[str, torch.Tensor], layers: int) -> dict[str, torch.Tensor]:
    """transformers' names of a CLIP picture encoder as OpenAI has them."""
    pairs = [
        ("vision_model.", ""),
        ("embeddings.class_embedding", "class_embedding"),
        ("embeddings.patch_embedding", "conv1"),
        ("embeddings.position_embedding.weight", "positional_embedding"),
        ("pre_layrnorm", "ln_pre"),
        ("post_layernorm", "ln_post"),
        ("encoder.layers", "transformer.resblocks"),
        ("layer_norm", "ln_"),
        ("mlp.fc1", "mlp.c_fc"),
        ("mlp.fc2", "mlp.c_proj"),
        ("self_attn.out_proj", "attn.out_proj"),
    ]
    renamed = {}
    for name, value in state.items():
        for old, new in pairs:
            name = name.replace(old, new)
        renamed[f"visual.{name}"] = value
    for layer in range(layers):
        block = f"visual.transformer.resblocks.{layer}"
        for kind in ("weight", "bias"):
            parts = [renamed.pop(f"{block}.self_attn.{part}_proj.{kind}") for part in "qkv"]
            renamed[f"{block}.attn.in_proj_{kind}"] = torch.cat(parts)
    renamed["visual.proj"] = renamed.pop("visual.visual_projection.weight").T.contiguous()
    return renamed


@torch.no_grad()
def test_farl_is_the_picture_encoder_of_clip(tmp_path: Path) -> None:
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    sizes = {"hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = CLIPVisionConfig(**sizes, image_size=64, patch_size=16, projection_dim=24)
    theirs = randomised(CLIPVisionModelWithProjection(config))
    saved = {"state_dict": {**openai_names(theirs.state_dict(), 2), "logit_scale": torch.tensor(4.6)}}
    pictures = torch.randn(3, 3, 64, 64)
    wanted = theirs(pictures).image_embeds
    plain = load(farl, saved, tmp_path / "farl.pth", normalize=False)(pictures)
    assert torch.allclose(plain, wanted, atol=2e-5 * float(wanted.abs().max()))
    unit = load(farl, saved, tmp_path / "farl.pth")(pictures)
    assert torch.allclose(unit, torch.nn.functional.normalize(wanted, dim=-1), atol=1e-5)


@pytest.mark.parametrize("name", ["tf_efficientnet_b0", "tf_efficientnet_b2"])
@torch.no_grad()
def test_emotieffnet_is_timms_network_out_of_a_pickled_module(timm: Any, tmp_path: Path, name: str) -> None:
    theirs = randomised(timm.create_model(name, pretrained=False, num_classes=8))
    size = 96
    ours = load(emotieffnet, theirs, tmp_path / "enet.pt", size=size)
    headless = copy.deepcopy(theirs)
    headless.classifier = torch.nn.Identity()
    pictures = torch.randn(2, 3, size, size)
    wanted = headless(pictures)
    assert torch.allclose(ours(pictures), wanted, atol=1e-5 * float(wanted.abs().max()))


CONVOLUTIONS = [(32, 10, 5), *[(32, 3, 2)] * 4, *[(32, 2, 2)] * 2]


def emotion2vec_checkpoint(theirs: torch.nn.Module) -> dict[str, Any]:
    """A training state as it is published, around the weights of exordium's network."""
    sound = "d2v_model.modality_encoders.AUDIO."
    state = {
        f"{'d2v_model.' if name.startswith('blocks.') else sound}{name}": value
        for name, value in theirs.state_dict().items()
    }
    return {"model": {**state, "proj.weight": torch.zeros(9, 96), "proj.bias": torch.zeros(9)}, "args": None}


@pytest.mark.parametrize("heads", [4, 6])
@torch.no_grad()
def test_emotion2vec_is_exordiums_network(
    exordium_emotion2vec: Any, tmp_path: Path, heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = exordium_emotion2vec
    theirs = peer._Emotion2vecModel(embed_dim=96, depth=2, num_heads=heads, prenet_depth=2, conv_spec=CONVOLUTIONS)
    saved = emotion2vec_checkpoint(randomised(theirs))
    waves = torch.randn(2, 400 + 320 * 30) * 0.1
    ours = load(emotion2vec, saved, tmp_path / "model.pt", normalize=False, distances="signed")
    wanted = theirs.extract_features(waves)["x"]
    assert torch.allclose(ours(waves), wanted, atol=1e-5 * float(wanted.abs().max()))

    def as_trained(batch_size: int, time_steps: int, heads: int, **_: Any) -> torch.Tensor:
        """ALiBi as data2vec 2.0 has it: minus the distance, and nothing to or from the extra tokens."""
        extra = theirs.num_extra_tokens
        place = torch.arange(time_steps - extra).float()
        slopes = torch.tensor(peer._get_alibi_slopes(heads)).view(-1, 1, 1)
        bias = -(place[None] - place[:, None]).abs()[None] * slopes
        return torch.nn.functional.pad(bias, (extra, 0, extra, 0))[None].expand(batch_size, -1, -1, -1)

    monkeypatch.setattr(peer, "_get_alibi_bias", as_trained)
    ours = load(emotion2vec, saved, tmp_path / "model.pt")
    normal = torch.stack([torch.nn.functional.layer_norm(wave, wave.shape) for wave in waves])
    wanted = theirs.extract_features(normal)["x"]
    assert torch.allclose(ours(waves), wanted, atol=1e-5 * float(wanted.abs().max()))


def test_weights_that_fit_no_network_are_refused_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    for architecture, name, words in (
        (farl, "farl", "lacks conv1.weight"),
        (emotieffnet, "emotieffnet", "has 0 stages; an EfficientNet has 7"),
        (emotion2vec, "emotion2vec", "lacks local_encoder.conv_layers.0.0.weight"),
    ):
        path = make_random_checkpoint.write(name, "tiny", 0, folder)
        kind = architecture.ARCHITECTURE.parameters
        assert architecture.load(Files({"weights": path}), kind()).random_weights
        torch.save({"state_dict": {"else": torch.zeros(1)}}, path)
        with pytest.raises(UpstreamError, match=words):
            architecture.load(Files({"weights": path}), kind())


@pytest.mark.parametrize("architecture", [farl, emotieffnet, emotion2vec])
def test_a_number_beyond_all_reason_in_a_name_asks_for_nothing(architecture: Any, tmp_path: Path) -> None:
    name = architecture.__name__.rpartition(".")[2]
    path = make_random_checkpoint.write(name, "tiny", 0, tmp_path)
    saved = torch.load(path, weights_only=True)
    part = saved.get("state_dict") or saved["model"]
    stray = {"farl": "visual.transformer.resblocks.", "emotieffnet": "blocks.", "emotion2vec": "d2v_model.blocks."}
    part[f"{stray[name]}999999999.weight"] = torch.zeros(1)
    torch.save(saved, path)
    with pytest.raises(UpstreamError, match="999999999"):
        architecture.load(Files({"weights": path}), architecture.ARCHITECTURE.parameters())
