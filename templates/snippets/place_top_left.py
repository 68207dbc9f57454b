def place(picture, size):
    """Width and height that the picture gets within size, and how far it lies from the left and from the top."""
    ratio = min(size[0] / picture.width, size[1] / picture.height)
    return max(round(picture.width * ratio), 1), max(round(picture.height * ratio), 1), 0, 0
