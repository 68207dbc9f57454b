"""Texts that would do something in a shell, in YAML, in Jinja, in Markdown, in a workflow, in a terminal, in HTML."""

from __future__ import annotations

PAYLOADS = {
    "shell": "$(touch /tmp/owned)`touch /tmp/owned`; touch /tmp/owned | sh && rm -rf ~ #",
    "shell quotes": "'; touch /tmp/owned; '\" && touch /tmp/owned \"",
    "YAML": "x: !!python/object/apply:os.system ['touch /tmp/owned']\n- &a [*a, *a]\n---\nkey: value",
    "Jinja": "{{ ''.__class__.__mro__[1].__subclasses__() }}{% for x in [1] %}owned{% endfor %}{# #}",
    "Markdown": "[click](javascript:alert(1)) ![x](https://evil.example/p.png) @everyone <img src=x> | a | b |",
    "GitHub expression": "${{ secrets.HF_TOKEN }} ${{ github.event.head_commit.message }} }}",
    "GitHub command": '\n::set-output name=matrix::{"include":[]}\n::add-mask::x\n##[set-env name=PATH]/tmp',
    "GitHub files": '\nmatrix<<EOF\n{"include":[{"recipe":"owned"}]}\nEOF\n',
    "rich markup": "[bold red]owned[/] [link=https://evil.example]x[/link] :boom:",
    "terminal": "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07\x1b[2J\x1b[31mowned\x1b[0m\x9b31m\r\x08\x7f\x00",
    "bidirectional": "\u202etxt.exe\u202c \u2066owned\u2069 \u200b\u2060\ufeff",
    "HTML": '</script></style></title><script>alert(1)</script><img src=x onerror=alert(1)>" onmouseover="alert(1)',
    "SVG": "<svg onload=alert(1)><foreignObject><iframe src=javascript:alert(1)></iframe></foreignObject></svg>",
    "JSON": '","include":[{"recipe":"owned"}],"x":"\\u0000',
    "path": "../../../../etc/passwd\\..\\..",
    "long": "a" * 20_000,
}
"""By what they are made for."""

CONTROLS = [chr(code) for code in (*range(0x0A), *range(0x0B, 0x20), 0x7F, *range(0x80, 0xA0))]
HIDING = ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066", "\u2067", "\u2068", "\u2069", "\u200b", "\ufeff"]


def is_inert(text: str) -> bool:
    """Whether a printed text neither controls a terminal, nor hides anything, nor commands a runner of workflows."""
    controls = any(char in text for char in [*CONTROLS, *HIDING])
    commands = any(line.lstrip().startswith("::") or "##[" in line for line in text.splitlines())
    return not controls and not commands
