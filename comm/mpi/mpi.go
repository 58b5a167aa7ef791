//go:build (linux || darwin) && (amd64 || arm64) && mpi

package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/farfield-ml/farfield/comm"
)

// Constants of both libraries.
const (
	threadFunneled = 1 // MPI_THREAD_FUNNELED: one thread makes all calls
	longestText    = 1 << 13
)

// Handles of MPICH, and of libraries with its binary interface. Handles of Open MPI are
// addresses of symbols.
const (
	mpichWorld        = 0x44000000
	mpichByte         = 0x4c00010d
	mpichErrorsReturn = 0x54000001
)

// libraryNames returns the usual names of the libraries, with open set Open MPI's first.
func libraryNames(open bool) []string {
	a, b := []string{"libmpi.so.40", "libmpi.so"}, []string{"libmpich.so.12", "libmpi.so.12", "libmpich.so"}
	if runtime.GOOS == "darwin" {
		a, b = []string{"libmpi.40.dylib", "libmpi.dylib"}, []string{"libmpich.12.dylib", "libmpi.12.dylib", "libmpich.dylib"}
	}
	if !open {
		a, b = b, a
	}
	return append(a, b...)
}

// functions lists the functions that this package calls.
var functions = []string{
	"MPI_Init_thread", "MPI_Initialized", "MPI_Finalize", "MPI_Abort", "MPI_Comm_rank", "MPI_Comm_size", "MPI_Comm_set_errhandler",
	"MPI_Error_string", "MPI_Get_library_version", "MPI_Alltoallv", "MPI_Allgatherv", "MPI_Bcast", "MPI_Barrier",
}

// world is the job of this rank.
type world struct {
	library          string // as it calls itself
	rank, size       int
	functions        map[string]uintptr
	all, byte, quiet uintptr // handles of MPI_COMM_WORLD, MPI_BYTE and MPI_ERRORS_RETURN

	do      chan func() error // what the one thread is to do
	results chan error

	timeout time.Duration // of an operation; 0: none
	timer   *time.Timer
	failure error // the thread waits in an operation that was given up, or has ended
	closed  bool

	// Reused memory, for sending and for receiving.
	counts, offsets [2][]int32
}

// Open starts MPI, once in a process, and returns this rank. An operation that waits
// longer than timeout for other ranks is an error with comm.ErrNoAnswer, as is every one
// after it: MPI waits for ever for a host that is cut off. 0 means no timeout.
func Open(timeout time.Duration) (comm.Transport, error) {
	w := &world{functions: map[string]uintptr{}, do: make(chan func() error), results: make(chan error, 1), timeout: timeout, timer: time.NewTimer(0)}
	by := findLauncher()
	if err := w.loadLibrary(by); err != nil {
		return nil, err
	}
	go w.serveCalls()
	err := w.runOnThread(w.joinJob)
	if err == nil {
		if err = by.checkSize(w.size, w.library); err != nil {
			_ = w.runOnThread(func() error { return w.callMPI("MPI_Finalize") })
		}
	}
	if err != nil {
		close(w.do)
		return nil, err
	}
	return w, nil
}

// LibraryName returns the name that the library of an MPI transport gives itself.
func LibraryName(t comm.Transport) string {
	if w, ok := t.(*world); ok {
		return w.library
	}
	return ""
}

// loadLibrary loads the library and looks up its functions.
func (w *world) loadLibrary(by *launcher) error {
	list := libraryNames(by == nil || by.isOpenMPI)
	if path := os.Getenv(Environment); path != "" {
		list = []string{path}
	}
	var lib uintptr
	var missing []error
	for _, name := range list {
		var err error
		// Open MPI's own parts look for symbols of the library in the whole process.
		if lib, err = purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL); err == nil {
			break
		}
		missing = append(missing, err)
	}
	if lib == 0 {
		return fmt.Errorf("mpi: no library of %s was found; set %s to the path of Open MPI's libmpi or of MPICH's libmpich: %w", strings.Join(list, ", "), Environment, missing[0])
	}
	for _, name := range functions {
		f, err := purego.Dlsym(lib, name)
		if err != nil {
			return fmt.Errorf("mpi: the library has no %s: %w", name, err)
		}
		w.functions[name] = f
	}
	w.library, _, _ = strings.Cut(w.callText("MPI_Get_library_version"), "\n")
	if world, err := purego.Dlsym(lib, "ompi_mpi_comm_world"); err == nil {
		w.all = world
		for name, to := range map[string]*uintptr{"ompi_mpi_byte": &w.byte, "ompi_mpi_errors_return": &w.quiet} {
			if *to, err = purego.Dlsym(lib, name); err != nil {
				return fmt.Errorf("mpi: %s has no %s: %w", w.library, name, err)
			}
		}
		return nil
	}
	if _, err := purego.Dlsym(lib, "ompi_mpi_byte"); err == nil || !sharesMPICH(w.library) {
		return fmt.Errorf("mpi: the library is %q, neither Open MPI nor of MPICH's binary interface", w.library)
	}
	w.all, w.byte, w.quiet = mpichWorld, mpichByte, mpichErrorsReturn
	return nil
}

// sharesMPICH reports whether a library has the handles of MPICH.
func sharesMPICH(version string) bool {
	for _, name := range []string{"MPICH", "Intel(R) MPI", "MVAPICH"} {
		if strings.Contains(version, name) {
			return true
		}
	}
	return false
}

// serveCalls calls the functions of do, all on one thread.
func (w *world) serveCalls() {
	runtime.LockOSThread()
	for f := range w.do {
		w.results <- f()
	}
}

// runOnThread calls f on the thread and returns its error. After the timeout it abandons
// the thread, which then owns the memory of f.
func (w *world) runOnThread(f func() error) error {
	if w.failure != nil {
		return w.failure
	}
	w.do <- f
	if w.timeout == 0 {
		return <-w.results
	}
	w.timer.Reset(w.timeout)
	select {
	case err := <-w.results:
		w.timer.Stop()
		return err
	case <-w.timer.C:
		w.failure = fmt.Errorf("%w from %s in %v", comm.ErrNoAnswer, w.describePeers(), w.timeout)
		return w.failure
	}
}

// describePeers describes the ranks that this one waits for.
func (w *world) describePeers() string {
	switch {
	case w.size < 2: // not known yet
		return "other ranks"
	case w.size == 2:
		return fmt.Sprintf("rank %d", 1-w.rank)
	}
	return fmt.Sprintf("one of the %d other ranks", w.size-1)
}

// callMPI calls a function with numbers and with addresses of Go's memory, which it pins
// for the call. Only functions that MPI allows before its start may be called from other
// threads.
func (w *world) callMPI(name string, args ...any) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	values := make([]uintptr, len(args))
	for i, x := range args {
		switch x := x.(type) {
		case int:
			values[i] = uintptr(x)
		case uintptr:
			values[i] = x
		case unsafe.Pointer:
			if x != nil {
				pin.Pin(x)
			}
			values[i] = uintptr(x)
		default:
			panic("mpi: an argument is neither a number nor an address")
		}
	}
	code, _, _ := purego.SyscallN(w.functions[name], values...)
	if int32(code) == 0 {
		return nil
	}
	text := w.callText("MPI_Error_string", int(int32(code)))
	return fmt.Errorf("%s: %s", name, text)
}

// callText calls a function that writes a text and its length to its last arguments.
func (w *world) callText(name string, args ...any) string {
	var n int32
	room := make([]byte, longestText)
	if err := w.callMPI(name, append(args, firstElement(room), unsafe.Pointer(&n))...); err != nil {
		return "unknown"
	}
	return strings.TrimRight(string(room[:min(max(int(n), 0), len(room))]), "\x00 \n")
}

// firstElement returns the address of x[0]; nil for an empty x.
func firstElement[E any](x []E) unsafe.Pointer {
	if len(x) == 0 {
		return nil
	}
	return unsafe.Pointer(unsafe.SliceData(x))
}

// joinJob joins the job.
func (w *world) joinJob() error {
	var running, level, rank, size int32
	if err := w.callMPI("MPI_Initialized", unsafe.Pointer(&running)); err != nil {
		return err
	}
	if running != 0 {
		return errors.New("mpi: has been started already in this process")
	}
	if err := w.callMPI("MPI_Init_thread", 0, 0, threadFunneled, unsafe.Pointer(&level)); err != nil {
		return err
	}
	if level < threadFunneled {
		return fmt.Errorf("mpi: %s is not made for programs with threads (level %d, needs %d)", w.library, level, threadFunneled)
	}
	for _, err := range []error{
		w.callMPI("MPI_Comm_set_errhandler", w.all, w.quiet),
		w.callMPI("MPI_Comm_rank", w.all, unsafe.Pointer(&rank)),
		w.callMPI("MPI_Comm_size", w.all, unsafe.Pointer(&size)),
	} {
		if err != nil {
			return err
		}
	}
	w.rank, w.size = int(rank), int(size)
	return nil
}

func (w *world) Rank() int { return w.rank }
func (w *world) Size() int { return w.size }

// layOutParts sets the counts and displacements i of parts of the lengths given.
func (w *world) layOutParts(i int, lengths []int) (counts, offsets unsafe.Pointer) {
	c, p := w.counts[i][:0], w.offsets[i][:0]
	at := 0
	for _, n := range lengths {
		c, p = append(c, int32(n)), append(p, int32(at))
		at += n
	}
	w.counts[i], w.offsets[i] = c, p
	return firstElement(c), firstElement(p)
}

func (w *world) Exchange(send []byte, toEach []int, recv []byte, fromEach []int) error {
	return w.runOnThread(func() error {
		sc, sp := w.layOutParts(0, toEach)
		rc, rp := w.layOutParts(1, fromEach)
		return w.callMPI("MPI_Alltoallv", firstElement(send), sc, sp, w.byte, firstElement(recv), rc, rp, w.byte, w.all)
	})
}

func (w *world) Gather(all []byte, lengths []int, own []byte) error {
	return w.runOnThread(func() error {
		rc, rp := w.layOutParts(1, lengths)
		return w.callMPI("MPI_Allgatherv", firstElement(own), len(own), w.byte, firstElement(all), rc, rp, w.byte, w.all)
	})
}

func (w *world) Broadcast(b []byte, root int) error {
	return w.runOnThread(func() error { return w.callMPI("MPI_Bcast", firstElement(b), len(b), w.byte, root, w.all) })
}

func (w *world) Barrier() error {
	return w.runOnThread(func() error { return w.callMPI("MPI_Barrier", w.all) })
}

// Abort ends the processes of all ranks. The launcher names the first rank; the caller
// prints the reason. After a timeout the launcher ends them when this process ends.
func (w *world) Abort(error) {
	_ = w.runOnThread(func() error { return w.callMPI("MPI_Abort", w.all, 1) })
}

var errClosed = errors.New("this rank is closed")

// Close waits until all ranks close, as MPI wants before a process ends. A second call
// does nothing.
func (w *world) Close() error {
	if w.closed {
		return nil
	}
	err := w.runOnThread(func() error { return w.callMPI("MPI_Finalize") })
	close(w.do)
	w.closed, w.failure = true, cmp.Or(w.failure, errClosed)
	return err
}

// checkSize reports a job of another size than the launcher says: the usual sign of one
// MPI's launcher with the library of another, where every process is a job of its own.
func (l *launcher) checkSize(size int, library string) error {
	if l == nil || l.size == "" {
		return nil
	}
	want, err := strconv.Atoi(cmp.Or(os.Getenv(l.size), "0"))
	if err != nil || want == 0 || want == size {
		return nil
	}
	return fmt.Errorf("mpi: %s has started %d processes, and %s sees %d; set %s to the library of that launcher", l.name, want, library, size, Environment)
}
