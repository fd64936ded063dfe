"""What tests print of each thing that they check."""


def check(what, good, detail=""):
    """Prints whether it is good; true if not."""
    print(f"{what}: {'ok' if good else f'BAD {detail}'.rstrip()}", flush=True)
    return not good
