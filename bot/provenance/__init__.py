"""How a release came about, in a form that other tools read: an in-toto statement, and signatures over one."""
