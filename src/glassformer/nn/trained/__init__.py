"""What our C++ computes in training on a CPU, with its gradients: attention, dropout, short convolutions."""
