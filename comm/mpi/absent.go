//go:build !((linux || darwin) && (amd64 || arm64) && mpi)

package mpi

import (
	"fmt"
	"runtime"
	"time"

	"github.com/farfield-ml/farfield/comm"
)

// errAbsent is the error of a program without a transport.
var errAbsent = fmt.Errorf("mpi: this program is built without MPI (for %s/%s); build it with -tags mpi on linux or darwin, amd64 or arm64", runtime.GOOS, runtime.GOARCH)

// Open starts MPI, once in a process, and returns this rank. An operation that waits
// longer than timeout for other ranks is an error with comm.ErrNoAnswer, as is every one
// after it: MPI waits for ever for a host that is cut off. 0 means no timeout.
func Open(timeout time.Duration) (comm.Transport, error) { return nil, errAbsent }

// LibraryName returns "": there is no library.
func LibraryName(comm.Transport) string { return "" }
