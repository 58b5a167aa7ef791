// Package comm sums and shares arrays among the ranks of a job: gradients of divided
// data, states of divided sequences.
//
// Every rank calls the same operations in the same order, with arrays of the same
// length where the operation says so. Sums are taken in the order of the ranks, in float64,
// and rounded once: their bits are the same on every rank and do not depend on the
// transport, on the length of the array or on how the work is divided. Other
// numbers of ranks agree to a rounding of each rank's own sum.
//
// Package comm/mpi is the transport of machines that MPI connects. Run and Local
// are ranks within a process, for tests and examples.
package comm
