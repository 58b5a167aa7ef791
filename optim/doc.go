// Package optim improves weights by their gradients: AdamW and RAdam, clipping by the
// global norm, and learning rates by step. Results do not depend on the number
// of threads.
//
// A rate is what one step multiplies its direction by; steps of a Schedule are
// counted from 0. Moments have the shapes of their weights. Nothing is checked for
// NaN: GradNorm is NaN where a gradient is.
package optim
