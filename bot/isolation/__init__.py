"""The room in which untrusted bytes are parsed: what a child process may see, and how it is shut in.

`bot.worker` is the door; nothing else of the bot needs these modules. Some run in the bot: `probe`, `room`, `private`,
`environment`, `bubblewrap`, `exchange`, `failures`, `leftovers`. Some run in the child: `child`, `namespaces`,
`landlock`, `seccomp`, `keeper`, `task`, `selfcheck`, `kernel`; they import nothing but the standard library, so that a
child starts fast.
"""
