def candidates(output, size, least):
    """Boxes (left, top, right, bottom) in pixels of the input, scores and classes of all that score enough."""
    rows = output[0][output[0][:, 4] >= least]
    return rows[:, :4], rows[:, 4], rows[:, 5].round().astype(int)
