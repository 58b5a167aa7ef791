// Package farfield is attention whose cost grows linearly with the context,
// exact, on ordinary processors: FAST's Fastmax, TaylorShift, linear (elu+1)
// attention, and softmax as the honest baseline.
//
// Attend is the shortest useful call. Open opens a model, trained here or published, and does with it
// what it can do:
//
//	m, err := farfield.Open("DIR")
//	v, err := m.Embed(ctx, "text")
//
// SetThreads sets the number of threads. The packages below hold the rest:
//
//   - attention: the contract (calls, gradients, states, plans) and its engines;
//   - mechanism: the catalogue of attention functions, by name;
//   - stream: attention over inputs beyond memory;
//   - nn, model, optim, train: a transformer that learns;
//   - pretrained, tokenizer: published models and their tokens;
//   - client: calls of a server that farfield serve started;
//   - tensor, param, safetensors, rng: views, weights, files, randomness.
//
// The command is github.com/farfield-ml/farfield/cmd/farfield.
package farfield
