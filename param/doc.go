// Package param keeps named weights beside their gradients.
//
// A weight of shape [r, c] is one slice in C order, with element (i, j) at i·c + j. Its
// gradient is a slice of the same size. Names are dotted, such as
// layers.0.attn.q_proj.weight. Adding a name that exists already is a bug in the program,
// and panics; asking for a name that does not exist is an error.
package param
