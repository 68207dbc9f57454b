"""All that talks to a Hub: reading upstream models, publishing releases, and checking what was published.

Nothing here knows what a model file contains. The client library is imported inside functions, or in modules that are
imported inside functions, so that the command line starts without it.
"""
