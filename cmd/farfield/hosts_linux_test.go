package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// twoHosts returns two hosts of this machine, whose link is slow and loses packets.
func twoHosts(t *testing.T) *hostPair {
	t.Helper()
	openMPI(t)
	p, err := newHostPair(t.TempDir(), 5*time.Millisecond, 0.01)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// onHosts is launched of a rank on each host.
func onHosts(t *testing.T, p *hostPair, args []string, meanwhile func(ended <-chan struct{})) (string, error) {
	t.Helper()
	return launchedBy(t, p.Command(openMPI(t)), args, meanwhile)
}

// A slow link that loses packets changes no bit of a training, nor of a stream.
func TestSlowLinkUnderMPI(t *testing.T) {
	p := twoHosts(t)
	root, data := t.TempDir(), textFile(t)
	alone, ours := filepath.Join(root, "alone"), filepath.Join(root, "ours")
	passes := []string{"--batch", "1", "--accumulate", "4", "--steps", "4"}
	out, err := onHosts(t, p, littleRun(data, ours, passes...), func(<-chan struct{}) {})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	works(t, littleRun(data, alone, passes...)...)
	if !reflect.DeepEqual(metrics(t, alone), metrics(t, ours)) {
		t.Error("two hosts train otherwise than one process")
	}
	stream := []string{"attend", "--mechanism", "fastmax", "--causal", "--synthetic", "3000,8,2"}
	here, there := filepath.Join(root, "here.npy"), filepath.Join(root, "there.npy")
	if out, err := underMPI(t, 2, append(stream, here)...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := onHosts(t, p, append(stream, there), func(<-chan struct{}) {}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(there); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("ranks on two hosts write another file than on one, %v", err)
	}
	if sent, lost := p.Packets(); lost == 0 || sent > 200000 {
		t.Errorf("%d packets, %d lost", sent, lost)
	}
}

// A lost host ends the run with an error that names it. The run continues from its last
// checkpoint, on one or two hosts, to the results of an uninterrupted run.
func TestCutLinkUnderMPI(t *testing.T) {
	root, data := t.TempDir(), textFile(t)
	longer := func(dir string, more ...string) []string {
		return littleRun(data, dir, append([]string{"--batch", "1", "--accumulate", "2", "--steps", "24", "--eval-every", "12"}, more...)...)
	}
	p := twoHosts(t)
	cut := false
	start := time.Now()
	var dir, out string
	var err error
	// On a busy machine the start of MPI or a checkpoint may take the 2 s before the cut.
	for tries := range 3 {
		dir = filepath.Join(root, fmt.Sprint("cut", tries))
		out, err = onHosts(t, p, longer(dir, "--rank-timeout", "2s"), func(ended <-chan struct{}) {
			for !cut {
				select {
				case <-ended:
					return
				case <-time.After(time.Millisecond):
				}
				if _, err := os.Stat(filepath.Join(dir, "ckpt", "latest")); err == nil {
					p.Cut()
					cut, start = true, time.Now()
				}
			}
		})
		if cut || !strings.Contains(out, "no answer from") {
			break
		}
	}
	if err == nil || !cut {
		t.Fatalf("the job has come to its end:\n%s", out)
	}
	t.Logf("ended %v after the cut", time.Since(start))
	for _, want := range []string{"rank 0 of 2: ", "no answer from rank 1 in 2s", "train --resume"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not said:\n%s", want, out)
		}
	}
	copied := filepath.Join(root, "copied")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	alone := filepath.Join(root, "alone")
	works(t, longer(alone)...)
	again := func(dir string) []string { return []string{"train", "--resume", "--out", dir, "--sample-tokens", "3"} }
	works(t, again(dir)...)
	if out, err := onHosts(t, twoHosts(t), again(copied), func(<-chan struct{}) {}); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := metrics(t, alone)
	for _, dir := range []string{dir, copied} {
		if !reflect.DeepEqual(want, metrics(t, dir)) {
			t.Errorf("%s: the run goes on otherwise", dir)
		}
	}
}
