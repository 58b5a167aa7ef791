// Package farfield is attention whose cost grows linearly with the context,
// exact, on ordinary processors: FAST's Fastmax, TaylorShift, linear (elu+1)
// attention, and softmax as the honest baseline.
//
// This package holds the shortest useful call, and the number of threads (SetThreads). The
// packages below it hold the rest:
//
//   - attention: the contract (calls, gradients, states, plans) and its engines;
//   - mechanism: the catalogue of attention functions, by name;
//   - stream: attention over inputs beyond memory;
//   - nn, optim, model, train, generate: a transformer that learns and writes;
//   - tensor, param, array, safetensors, rng: views, weights, files, randomness.
//
// The command is github.com/farfield-ml/farfield/cmd/farfield.
package farfield
