"""The panels under the pictures: compare, race, scaling, share."""
