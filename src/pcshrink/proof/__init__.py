"""Equal or refused: groups are proven before training, cuts when they are made."""
