"""Cards, pull requests, comments, summaries and review pages. They read a Release and nothing else.

A card's prose follows what a recipe did: it looks for steps by name, and at what they report. For the author of a step
these are the keys of `StepRecord.report` that FaceAge's card knows, all optional. Where a key is missing, or false, the
card does not speak of it; how many nodes of which operator there are it takes from the census.

Step `rebuild`, for a graph that was written anew with fused operators:

| key | meaning |
|---|---|
| `residual_scale` | what the residual stream is multiplied by: 0.125, shown as 1/8 |
| `epsilon_scale` | what each LayerNorm's epsilon is multiplied by: 0.015625, shown as 1/64 |
| `residual_channel` | the channel that carries the massive activation, if the step knows it |
| `residual_peak_before` | largest magnitude on the source's residual stream, if the step knows it |
| `residual_peak_after` | largest magnitude on the rebuilt one, if the step knows it |
| `precision` | `fp16` (also where it is missing) or `fp32`, of projections and attention |
| `residual` | `fp32` (also where it is missing) or `fp16`, of the residual stream and its norms |
| `residual_every` | in how many blocks an fp16 stream is rounded once; 0 for every addition |
| `attention` | `separate` (also where it is missing), `packed` or `split`: how query, key and value are given |
| `norms_compensated` | true if the next matrices make good what rounding the norms changed |
| `calibrated`, `calibrated_on` | true if biases make good what rounding matrices changes on average; on how many |
| `folded` | a list, of `layer_scales` (into the output projections) and `value_bias` (into their bias) |
| `rotary_computed_in` | the dtype in which the tables of cosines and sines were computed: `float64` |
| `tokens` | how many tokens pass through a block |
| `register_tokens` | how many of them are registers |
| `last_block_cls_only` | true if the last block computes queries and feed-forward layer for the class token only |
| `constant_shapes` | true if every Reshape has a constant shape, the batch being -1 |

Step `drop_cast_round_trips`: `up_casts_removed` and `down_casts_removed`. Step `float16_common`: `clipped_above`. Step
`float16`: `nodes_converted`, `nodes_kept`, `kept_because`, `casts_added` and `weights`.

What the steps do not know is measured: Measurements of `source:KEY` with the subject `residual` and the metric
`largest_magnitude` (the peak) or `massive_channel` (which channel). Without a peak of the rebuilt stream, the card
gives the source's peak times the scale, a power of two.
"""
