package mpi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/mpi"
)

// Tests start this binary again under a launcher, where it is a rank that does the
// job of that name.
const jobVariable = "FARFIELD_TEST_JOB"

var jobs = map[string]func(c *comm.Comm) error{"operations": operations, "death": death, "silence": silence, "timing": timing}

func TestMain(m *testing.M) {
	job := jobs[os.Getenv(jobVariable)]
	if job == nil {
		os.Exit(m.Run())
	}
	timeout := time.Minute
	if os.Getenv(jobVariable) == "silence" {
		timeout = silenceTimeout
	}
	t, err := mpi.Open(timeout)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	c := comm.New(t)
	if err := job(c); err != nil {
		fmt.Println(err)
		c.Abort(err)
	}
	if err := c.Close(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	// After Close nothing reaches MPI.
	c.Abort(nil)
	if err, again := c.Barrier(), c.Close(); err == nil || again != nil {
		fmt.Println("after Close:", err, again)
		os.Exit(1)
	}
}

// launchers of both MPIs, and the library that goes with each.
var launchers = []launcher{
	{"Open MPI", []string{"mpirun.openmpi", "mpirun"}, "libmpi.so.40", []string{"--oversubscribe", "--mca", "mpi_yield_when_idle", "1"}},
	{"MPICH", []string{"mpirun.mpich", "mpirun"}, "libmpich.so.12", nil},
}

type launcher struct {
	name     string
	commands []string // what it may be called
	library  string
	flags    []string
}

// path finds the command of the launcher, which says what it is.
func (l *launcher) path(t testing.TB) string {
	t.Helper()
	for _, command := range l.commands {
		path, err := exec.LookPath(command)
		if err != nil {
			continue
		}
		about, _ := exec.CommandContext(t.Context(), path, "--version").Output()
		if bytes.Contains(about, []byte("Open MPI")) == (l.name == "Open MPI") {
			return path
		}
	}
	t.Skipf("%s: no %s is installed", l.name, strings.Join(l.commands, " or "))
	return ""
}

// launch runs a job of n ranks and returns what they print.
func (l *launcher) launch(t testing.TB, library string, n int, job string) (string, error) {
	t.Helper()
	path := l.path(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, path, append(slices.Clone(l.flags), "-n", fmt.Sprint(n), self)...)
	cmd.Env = append(os.Environ(), jobVariable+"="+job, mpi.Environment+"="+library, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	out, err := cmd.CombinedOutput()
	switch {
	case bytes.Contains(out, []byte("no library of")):
		t.Skipf("%s: the library is missing", library)
	case bytes.Contains(out, []byte("built without MPI")):
		t.Skip("without -tags mpi")
	}
	return string(out), err
}

// operations checks each operation against what it is to give.
func operations(c *comm.Comm) error {
	n, me := c.Size(), c.Rank()
	x, y, z := make([]float32, 1000), make([]float64, 5), make([]float64, 5)
	for i := range x {
		x[i] = float32(i + me)
	}
	for i := range y {
		y[i], z[i] = float64(me+1), float64(me+1)
	}
	left := make([][]float64, n)
	for r := range left {
		left[r] = []float64{0.5}
	}
	for _, err := range []error{comm.AllReduce(c, x), comm.ExclusiveScan(c, y, nil), comm.ReverseScan(c, z, left), c.Barrier()} {
		if err != nil {
			return err
		}
	}
	for i := range x {
		if want := float32(n*i + n*(n-1)/2); x[i] != want {
			return fmt.Errorf("sum: element %d is %v, not %v", i, x[i], want)
		}
	}
	var after float64
	for r := n - 1; r > me; r-- {
		after = after/2 + float64(r+1)
	}
	if y[4] != float64(me*(me+1)/2) || z[4] != after {
		return fmt.Errorf("rank %d: prefix is %v, suffix %v, not %v", me, y, z, after)
	}
	list, err := comm.AllGather(c, []byte(strings.Repeat("x", me)))
	if err != nil {
		return err
	}
	for r, text := range list {
		if len(text) != r {
			return fmt.Errorf("all-gather: rank %d gave %q", r, text)
		}
	}
	b := []byte{byte(me)}
	if err := comm.Broadcast(c, b, n-1); err != nil || b[0] != byte(n-1) {
		return fmt.Errorf("broadcast: %v, %v", b, err)
	}
	fmt.Printf("rank %d of %d is done\n", me, n)
	return nil
}

// death has the last rank die while the others wait for it.
func death(c *comm.Comm) error {
	if c.Rank() == c.Size()-1 {
		os.Exit(7)
	}
	return c.Barrier()
}

// silenceTimeout is time for MPI to start on a busy machine.
const silenceTimeout = 3 * time.Second

// silence has the last rank live and say nothing while the others wait for it.
func silence(c *comm.Comm) error {
	if c.Rank() == c.Size()-1 {
		time.Sleep(time.Minute)
		return nil
	}
	err := c.Barrier()
	again := c.Barrier()
	fmt.Printf("%v; %v: %v\n", errors.Is(err, comm.ErrNoAnswer) && errors.Is(again, comm.ErrNoAnswer), c.Size(), err)
	os.Exit(7)
	return nil
}

// Floats of a state of fastmax at D = 16, 32 and 64, packed, for timing.
var states = []int{153 * 17, 561 * 33, 2145 * 65}

// timing prints the nanoseconds of a prefix for each size of a state.
func timing(c *comm.Comm) error {
	const times = 100
	for _, n := range states {
		x := make([]float32, n)
		var start time.Time
		for i := range times + 10 {
			if i == 10 { // memory is there by then
				start = time.Now()
			}
			if err := comm.ExclusiveScan(c, x, nil); err != nil {
				return err
			}
		}
		if c.Rank() == 0 {
			fmt.Printf("%d %d\n", n, time.Since(start).Nanoseconds()/times)
		}
	}
	return nil
}

// BenchmarkPrefix is an exclusive prefix of states over ranks of Open MPI on this
// machine, which take turns where there are fewer cores.
func BenchmarkPrefix(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		b.Run(fmt.Sprintf("%d ranks", ranks), func(b *testing.B) {
			for b.Loop() {
				out, err := launchers[0].launch(b, launchers[0].library, ranks, "timing")
				if err != nil {
					b.Fatalf("%v\n%s", err, out)
				}
				for line := range strings.Lines(out) {
					var n int
					var ns float64
					if _, err := fmt.Sscan(line, &n, &ns); err == nil {
						b.ReportMetric(ns/1e3, fmt.Sprintf("us/%dKiB", 4*n/1024))
					}
				}
			}
		})
	}
}

func TestOperationsOverMPIEqualLocalOnes(t *testing.T) {
	for _, l := range launchers {
		for _, n := range []int{1, 2, 4} {
			if n > 2 && l.name == "MPICH" {
				continue // it waits busily, and would take turns on few cores
			}
			t.Run(fmt.Sprintf("%s/%d", l.name, n), func(t *testing.T) {
				out, err := l.launch(t, l.library, n, "operations")
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				for r := range n {
					if want := fmt.Sprintf("rank %d of %d is done", r, n); !strings.Contains(out, want) {
						t.Errorf("%q is missing:\n%s", want, out)
					}
				}
			})
		}
	}
}

func TestDeathEndsTheJob(t *testing.T) {
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			if out, err := l.launch(t, l.library, 2, "death"); err == nil {
				t.Errorf("the job ended well:\n%s", out)
			}
		})
	}
}

func TestSilentRankIsAnError(t *testing.T) {
	for _, l := range launchers {
		t.Run(l.name, func(t *testing.T) {
			start := time.Now()
			out, err := l.launch(t, l.library, 2, "silence")
			// Before MPI has started, a rank does not know the others.
			for tries := 1; tries < 3 && strings.Contains(out, "no answer from other ranks"); tries++ {
				start = time.Now()
				out, err = l.launch(t, l.library, 2, "silence")
			}
			if want := "true; 2: rank 0 of 2: barrier: no answer from rank 1 in 3s"; err == nil || !strings.Contains(out, want) {
				t.Errorf("after %v: %v\n%s\nwant %q", time.Since(start), err, out, want)
			}
		})
	}
}

// The library of another MPI than the launcher's sees a job of one.
func TestOtherLibraryIsRefused(t *testing.T) {
	out, err := launchers[0].launch(t, launchers[1].library, 2, "operations")
	if err == nil || !strings.Contains(out, "has started 2 processes, and MPICH") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestOpenNamesWhatIsMissing(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libnone.so")
	t.Setenv(mpi.Environment, missing)
	if _, err := mpi.Open(time.Minute); err == nil || !strings.Contains(err.Error(), "mpi: ") {
		t.Errorf("error %v", err)
	}
}

// A process is a rank only where a launcher has started it.
func Example() {
	if !mpi.IsLaunched() {
		fmt.Println("alone")
		return
	}
	t, err := mpi.Open(time.Minute)
	if err != nil {
		fmt.Println(err)
		return
	}
	c := comm.New(t)
	defer c.Close()
	x := []float64{1}
	if err := comm.AllReduce(c, x); err != nil {
		c.Abort(err)
	}
	// Output: alone
}
