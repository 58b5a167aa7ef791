package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/cli/attend"
)

// underMPI runs the program with n ranks, and returns both streams together.
func underMPI(t *testing.T, n int, args ...string) (string, error) {
	t.Helper()
	return launched(t, n, args, func(<-chan struct{}) {})
}

// launched is underMPI, and calls meanwhile when the job has begun, with what is closed
// when it ends.
func launched(t *testing.T, n int, args []string, meanwhile func(ended <-chan struct{})) (string, error) {
	t.Helper()
	return launchedBy(t, []string{openMPI(t), "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", fmt.Sprint(n)}, args, meanwhile)
}

// withoutMPI says that the program has no transport.
var withoutMPI bool

// openMPI is the path of its mpirun.
func openMPI(t *testing.T) string {
	t.Helper()
	if withoutMPI {
		t.Skip("without -tags mpi")
	}
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	about, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil || !strings.Contains(string(about), "Open MPI") {
		t.Skip("mpirun is not that of Open MPI, which may have more ranks than cores")
	}
	return path
}

// launchedBy is launched of ranks that the words of a launcher start.
func launchedBy(t *testing.T, launcher, args []string, meanwhile func(ended <-chan struct{})) (string, error) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	words := slices.Concat(launcher, []string{self, "--threads", "1"}, args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.WaitDelay = time.Second // child processes may hold its streams
	cmd.Env = append(os.Environ(), "FARFIELD_AS_PROGRAM=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		err = cmd.Wait()
		close(ended)
	}()
	meanwhile(ended)
	<-ended
	if strings.Contains(out.String(), "no library of") {
		t.Skip("the library of MPI is missing")
	}
	return out.String(), err
}

// Ranks of mpirun write the file of one process, and send as much for 3000 tokens as
// for 300.
func TestAttendUnderMPI(t *testing.T) {
	openMPI(t)
	var sent []int64
	for _, tokens := range []string{"300,8,2", "3000,8,2"} {
		dir := t.TempDir()
		alone, ours := filepath.Join(dir, "alone.npy"), filepath.Join(dir, "ours.npy")
		args := []string{"attend", "--mechanism", "fastmax", "--causal", "--json", "--synthetic", tokens}
		works(t, append(args, alone)...)
		out, err := underMPI(t, 3, append(args, ours)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		var report attend.StreamReport
		if err := json.Unmarshal([]byte(out[strings.Index(out, "{"):]), &report); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if report.Ranks != 3 {
			t.Errorf("%d ranks reported", report.Ranks)
		}
		sent = append(sent, report.Sent)
		want, err := npy(t, alone).Float32()
		if err != nil {
			t.Fatal(err)
		}
		got, err := npy(t, ours).Float32()
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d numbers, want %d", len(got), len(want))
		}
		// Rows of deviation 1 have |s| ≤ D, so that f̄/f < 2D, and |v| < 4.
		limit := 2 * check.LinearLimits[float32](45, 512).Output(16, 4)
		for i := range want {
			if !(math.Abs(float64(got[i]-want[i])) <= limit) {
				t.Fatalf("%s: element %d is %v, alone %v", tokens, i, got[i], want[i])
			}
		}
	}
	if sent[0] == 0 || sent[0] != sent[1] {
		t.Errorf("%d bytes were sent", sent)
	}
}

// What all ranks know to be wrong is said once.
func TestRanksRefuseTogether(t *testing.T) {
	out, err := underMPI(t, 2, "attend", "--mechanism", "softmax", "--causal", "--synthetic", "300,8,2", "-")
	if err == nil || strings.Count(out, "the state of softmax grows with the tokens") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
}
