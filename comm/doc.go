// Package comm sums and shares arrays among the ranks of a job: gradients of divided data,
// states of divided sequences.
//
// Every rank must call the same operations in the same order, with arrays of the same length
// unless the operation allows otherwise. Sums are taken in the order of the ranks, in float64,
// and rounded once. Their bits are the same on every rank, and do not depend on the transport,
// on the length of the array or on how the work is divided. Results for different numbers of
// ranks differ by the rounding of each rank's own sum.
//
// Package comm/mpi is the transport for machines that MPI connects. RunLocal runs ranks within
// one process, for tests and examples.
package comm
