//go:build !((linux || darwin) && (amd64 || arm64) && mpi)

package mpi

import (
	"fmt"
	"runtime"

	"github.com/farfield-ml/farfield/comm"
)

// errAbsent is what there is in place of a transport.
var errAbsent = fmt.Errorf("mpi: this program is built without MPI (for %s/%s); build it with -tags mpi on linux or darwin, amd64 or arm64", runtime.GOOS, runtime.GOARCH)

// Open starts MPI, once in a process, and returns this rank.
func Open() (comm.Transport, error) { return nil, errAbsent }

// Library is what the library of a transport of this package calls itself.
func Library(comm.Transport) string { return "" }
