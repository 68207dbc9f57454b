def place(picture, size):
    """Width and height that the picture gets within size, and how far it lies from the left and from the top."""
    return *size, 0, 0
