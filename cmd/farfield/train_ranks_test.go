package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Ranks of mpirun train to the metrics of one process, and go on with another number.
func TestTrainUnderMPI(t *testing.T) {
	root, data := t.TempDir(), textFile(t)
	alone, ours := filepath.Join(root, "alone"), filepath.Join(root, "ours")
	passes := []string{"--batch", "1", "--accumulate", "4", "--set", "window=0"}
	out, err := underMPI(t, 3, littleRun(data, ours, passes...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	works(t, littleRun(data, alone, passes...)...)
	if !reflect.DeepEqual(metrics(t, alone), metrics(t, ours)) {
		t.Error("three ranks train otherwise than one process")
	}
	for _, once := range []string{"updates 1 to 8 of 4 times 1×20 tokens", "step 8 of 8  loss", "validation (whole)", "sample\n"} {
		if strings.Count(out, once) != 1 {
			t.Errorf("%q is not there once:\n%s", once, out)
		}
	}
	sequences := filepath.Join(root, "sequences")
	if out, err := underMPI(t, 2, littleRun(data, sequences, append(passes, "--divide", "sequence")...)...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// Sums in another order, in float32: 1e-7 was measured after 30 updates.
	a, b := metrics(t, alone), metrics(t, sequences)
	for i := range a {
		if x, y := a[i]["loss"].(float64), b[i]["loss"].(float64); !(math.Abs(x-y) <= 1e-5*x) {
			t.Errorf("line %d: ranks that divide sequences lose %v, one process %v", i+1, y, x)
		}
	}
	out, err = underMPI(t, 5, "train", "--resume", "--out", alone)
	if err == nil || strings.Count(out, "continue with 4 ranks or fewer") != 1 {
		t.Errorf("five ranks for four passes: %v\n%s", err, out)
	}
}

// signalRank sends a signal to the process of a rank whose command has the argument, or
// reports that there is none.
func signalRank(rank int, argument string, signal syscall.Signal) bool {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range list {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		vars, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if !bytes.Contains(args, []byte("\x00"+argument+"\x00")) || !bytes.Contains(vars, fmt.Appendf(nil, "OMPI_COMM_WORLD_RANK=%d\x00", rank)) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			return false
		}
		p, err := os.FindProcess(pid)
		return err == nil && p.Signal(signal) == nil
	}
	return false
}

// A killed rank ends the job, and every other rank reports it. An interrupted rank ends
// all ranks. The run continues from its checkpoint, with any number of ranks, to the
// results of an uninterrupted run.
func TestEndedRankUnderMPI(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("processes are found by /proc")
	}
	root, data := t.TempDir(), textFile(t)
	longer := func(dir string) []string {
		return littleRun(data, dir, "--batch", "1", "--accumulate", "2", "--steps", "300")
	}
	want := sync.OnceValue(func() []map[string]any {
		alone := filepath.Join(root, "alone")
		works(t, longer(alone)...)
		return metrics(t, alone)
	})
	for _, x := range []struct {
		name   string
		signal syscall.Signal
		says   string
		ranks  int // that continue; 1: a process alone
	}{
		{"killed", syscall.SIGKILL, "farfield: rank 0: asked to end", 2},
		{"asked", syscall.SIGINT, "farfield: stopped after update", 1},
	} {
		dir := filepath.Join(root, x.name)
		sent := false
		out, err := launched(t, 2, longer(dir), func(ended <-chan struct{}) {
			for !sent {
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
				if _, err := os.Stat(filepath.Join(dir, "ckpt", "latest")); err == nil {
					sent = signalRank(1, dir, x.signal)
				}
			}
		})
		if err == nil || !sent {
			t.Fatalf("%s: the job has come to its end:\n%s", x.name, out)
		}
		if strings.Count(out, x.says) != 1 {
			t.Errorf("%s: %q is not there once:\n%s", x.name, x.says, out)
		}
		again := []string{"train", "--resume", "--out", dir, "--sample-tokens", "3"}
		if x.ranks == 1 {
			works(t, again...)
		} else if out, err := underMPI(t, x.ranks, again...); err != nil {
			t.Fatalf("%s: %v\n%s", x.name, err, out)
		}
		if !reflect.DeepEqual(want(), metrics(t, dir)) {
			t.Errorf("%s: the run goes on otherwise", x.name)
		}
	}
}
