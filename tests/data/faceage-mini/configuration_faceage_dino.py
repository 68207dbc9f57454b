"""Configuration of a FaceAge network whose weights are random."""

from __future__ import annotations

from typing import Any

from transformers import DINOv3ViTConfig, PretrainedConfig


class FaceAgeDinoConfig(PretrainedConfig):
    """What it takes to rebuild the network.

    Args:
        backbone: Keyword arguments of a `DINOv3ViTConfig`.
        num_ages: Number of CORAL thresholds of the age head.
        random_weights: True if nobody trained the weights.
        random_weights_seed: The seed that they were drawn from.
    """

    model_type = "faceage_dino"

    def __init__(
        self,
        backbone: dict[str, Any] | None = None,
        num_ages: int = 100,
        random_weights: bool = True,
        random_weights_seed: int = 0,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("id2label", {0: "female", 1: "male"})
        kwargs.setdefault("label2id", {"female": 0, "male": 1})
        super().__init__(**kwargs)
        self.backbone = backbone or {}
        self.num_ages = num_ages
        self.random_weights = random_weights
        self.random_weights_seed = random_weights_seed

    def backbone_config(self) -> DINOv3ViTConfig:
        """The backbone's own configuration, with eager attention."""
        return DINOv3ViTConfig(**self.backbone, attn_implementation="eager")
