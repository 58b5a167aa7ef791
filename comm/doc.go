// Package comm lets the ranks of a job sum and share what they have: gradients
// of data that is divided among them, states of sequences that are.
//
// Every rank calls the same operations in the same order, with arrays of the same
// length where that is said. Sums are taken in the order of the ranks, in float64,
// and rounded once: their bits are the same on every rank and do not depend on the
// transport, on the length of the array or on how the work is divided. Other
// numbers of ranks agree to a rounding of each rank's own sum.
//
// Package comm/mpi is the transport of machines that MPI connects. Run and Local
// are ranks within a process, for tests and examples.
package comm
