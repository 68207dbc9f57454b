"""The FaceAge network: a DINOv3 backbone, a CORAL head for the age and a head of two logits for the gender."""

from __future__ import annotations

import torch
from transformers import DINOv3ViTModel, PreTrainedModel

from .configuration_faceage_dino import FaceAgeDinoConfig


class FaceAgeDinoModel(PreTrainedModel):
    """Age and gender of one face crop.

    Both heads read the backbone's CLS token through one LayerNorm.
    """

    config_class = FaceAgeDinoConfig
    main_input_name = "face"

    def __init__(self, config: FaceAgeDinoConfig) -> None:
        super().__init__(config)
        backbone = config.backbone_config()
        self.backbone = DINOv3ViTModel(backbone)
        self.norm = torch.nn.LayerNorm(backbone.hidden_size)
        self.age_head = torch.nn.Linear(backbone.hidden_size, config.num_ages)
        self.gender_head = torch.nn.Linear(backbone.hidden_size, 2)
        self.post_init()

    def forward(self, face: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the network.

        Args:
            face: Bx3xHxW, float32, RGB, scaled to 0..1 and normalised with ImageNet's mean and deviation.

        Returns:
            age_logits: B x num_ages. The age in years is the sum of their sigmoids.
            gender_logits: B x 2. 0 is female, 1 is male.
        """
        features = self.norm(self.backbone(face).pooler_output)
        return self.age_head(features), self.gender_head(features)
