// Package param keeps named weights beside their gradients.
//
// A weight of shape [r, c] is one slice in C order, element (i, j) at i·c + j, and
// its gradient is another of the same shape. Names are dotted, as
// layers.0.attn.q_proj.weight, and are the program's own: one that is taken panics,
// one that is asked for and not there is an error.
package param
