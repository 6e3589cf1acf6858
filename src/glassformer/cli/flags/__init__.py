"""What flags ask for, which one may have been meant, and how errors name them."""
