// Package farfield computes attention whose cost grows linearly with the context, on ordinary
// processors, and opens models that use it.
//
// Attend computes the attention of slices with a function of the catalogue: the factorised polynomial
// of FAST (fastmax), multipole, TaylorShift, linear attention, softmax and many more.
//
// Open opens a model that farfield train, farfield exchange or somebody else has made. Its methods
// make vectors, predict classes, score and continue texts:
//
//	m, err := farfield.Open("DIR")
//	v, err := m.Embed(ctx, "text")
//
// SetThreads sets the number of threads. Other packages have the rest:
//
//   - attention: calls of attention, gradients, states and plans, and the engines that compute them;
//   - mechanism: the catalogue of attention functions, by name;
//   - stream: attention over inputs beyond memory;
//   - nn, model, optim, train: transformers and their training;
//   - pretrained, tokenizer: published models, the exchange of their attention, and their tokens;
//   - client: calls of a server that farfield serve started;
//   - tensor, param, rng: views of arrays, weights, random numbers.
//
// The command is github.com/farfield-ml/farfield/cmd/farfield.
package farfield
