// Package cpu tells which instruction set the kernels use and why.
package cpu
