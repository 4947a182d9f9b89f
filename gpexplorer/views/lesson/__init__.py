"""The first screen: points that swap, what every row would bring, and the distance to the exact model."""
