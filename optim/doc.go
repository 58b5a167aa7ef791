// Package optim updates weights from their gradients: AdamW and RAdam, clipping by the global
// norm, and learning-rate schedules. Results do not depend on the number of threads.
//
// A step multiplies its direction by the learning rate. Steps of a Schedule are counted from
// 0. Moments have the shapes of their weights. Nothing is checked for NaN: GradNorm is NaN if
// a gradient is.
package optim
