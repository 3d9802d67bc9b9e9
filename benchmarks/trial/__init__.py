"""Long trainings on CIFAR-10 that pages are written from: what they are, how they run, what is kept of them."""
