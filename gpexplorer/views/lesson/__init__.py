"""The first screen: inducing points that swap, the landscape of what every row would bring, and the distance to the exact model."""
