// Package mpi is the transport of package comm over MPI, the way in which the
// processes of a cluster's job reach each other. Open MPI or MPICH, or what has the
// binary interface of either, is loaded when it is asked for: the program is built
// without a C compiler and needs MPI only where it runs under it.
//
//	mpirun -n 4 farfield attend --mechanism fastmax --causal --synthetic 1000000,32,8 o.npy
//
// FARFIELD_MPI names the library, as a path or a name for the system's loader. Without it
// the first library with a usual name is taken; names that belong to the process's
// launcher come first.
//
// Loading a library takes the system's own loader: only programs built with the tag mpi
// have it, on linux and darwin, and they are not static. In others Open returns an error
// that says so.
//
// Sums are not MPI's: MPI_Allreduce may add in another order for each size. Package
// comm adds in the order of the ranks, and needs MPI to move bytes alone.
package mpi

import (
	"os"
)

// Environment is the variable that names the library.
const Environment = "FARFIELD_MPI"

// launcher describes the environment that a launcher gives its processes.
type launcher struct {
	name      string
	size      string // variable with the number of ranks; "" if the launcher has none
	mark      string // variable that only it sets
	isOpenMPI bool   // its library is Open MPI
}

var launchers = []launcher{
	{"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", true},
	{"MPICH's mpiexec", "PMI_SIZE", "PMI_RANK", false},
	{"Slurm's srun with PMIx", "SLURM_NTASKS", "PMIX_RANK", true},
}

// findLauncher returns the launcher that has started this process, nil if none has.
func findLauncher() *launcher {
	for i, l := range launchers {
		if os.Getenv(l.mark) != "" {
			return &launchers[i]
		}
	}
	return nil
}

// IsLaunched reports whether mpirun, mpiexec or an srun with MPI has started this
// process.
func IsLaunched() bool { return findLauncher() != nil }
