"""How a graph is converted to half precision: `scopes` reads it, `planning` decides, `rewriting` carries it out.

`rules` holds what is known of single operators, `constants` what float16 does to weights, `regions` which nodes belong
together with one that has to stay float32.
"""
