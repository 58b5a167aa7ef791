//go:build linux

package attacks

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	tries = flag.Int("tries", 2, "tries of each kind of work")
	seed  = flag.Uint64("seed", 1, "seed of the moments and of the room on the disk")
)

// shape makes a model so small that a run takes a second.
const shape = "--layers 1 --heads 2 --width 16 --hidden 16 --batch 1 --eval-samples 2 --final-samples 20 --sample-tokens 3 --quiet"

// A job is work that a second process continues after the first was killed. Commands run in the job's folder, which
// has the shared inputs in the folder in.
type job struct {
	name string
	// command begins the work. resume continues it once the file begun exists; empty: the command itself does.
	command, begun, resume string
	results                []string // patterns of the files that must be the same in the end
}

var jobs = []job{
	{
		name:    "train",
		command: "train --data in/text --out out/run --preset tiny --context 32 --steps 400 --save-every 40 --eval-every 100 " + shape,
		begun:   "out/run/config.json", resume: "train --resume --out out/run --sample-tokens 3 --quiet",
		results: []string{"out/run/ckpt/latest", "out/run/ckpt/*/model.safetensors"},
	},
	{
		name:    "attend --stream",
		command: "attend --mechanism fastmax --causal --synthetic 60000,16,2 --rows-every 20 --memory 2MiB --checkpoint-every 20ms out/o.npy",
		results: []string{"out/o.npy"},
	},
	{
		name:    "score",
		command: "score --model in/run --jsonl --out out/scored.jsonl in/records.jsonl",
		results: []string{"out/scored.jsonl"},
	},
	{
		name:    "embed",
		command: "embed --model in/run --out out/vectors.jsonl in/records.jsonl",
		results: []string{"out/vectors.jsonl"},
	},
	{
		name:    "data generate",
		command: "data generate listops --folder out --train 1500 --valid 100 --test 100",
		results: []string{"out/*/*"},
	},
}

// elapsed finds the parts of results that depend on the clock.
var elapsed = regexp.MustCompile(`"(elapsed_s|tokens_per_s|seconds)": ?[-+0-9.e]+`)

func TestKilledWorkContinues(t *testing.T) {
	l := newLab(t)
	for i, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, took := l.reference(t, &j)
			r := rand.New(rand.NewPCG(*seed, uint64(i)))
			for range *tries {
				dir := l.folder(t)
				var moments []time.Duration
				for range 1 + r.IntN(4) {
					after := time.Millisecond + time.Duration(r.Float64()*float64(took))
					if r.IntN(2) == 0 { // early, where files are made
						after = time.Millisecond + time.Duration(r.Float64()*float64(min(took, 300*time.Millisecond)))
					}
					ctx, cancel := context.WithTimeout(t.Context(), after)
					err := l.run(ctx, dir, j.next(dir))
					cancel()
					if err == nil {
						break
					}
					if ctx.Err() == nil {
						t.Fatalf("after kills at %v: %v", moments, err)
					}
					moments = append(moments, after)
				}
				l.finish(t, dir, &j, want, fmt.Sprintf("after kills at %v", moments))
			}
		})
	}
}

func TestFullDiskLosesNothing(t *testing.T) {
	l := newLab(t)
	for i, j := range jobs {
		t.Run(j.name, func(t *testing.T) {
			want, _ := l.reference(t, &j)
			size := 0
			for _, text := range want {
				size += len(text)
			}
			r := rand.New(rand.NewPCG(*seed, 1<<32+uint64(i)))
			for range *tries {
				dir := l.folder(t)
				out := filepath.Join(dir, "out")
				room := (4<<10 + int(r.Float64()*float64(size)*1.2)) &^ 4095
				if err := syscall.Mount("tmpfs", out, "tmpfs", 0, fmt.Sprintf("size=%d", room)); err != nil {
					t.Skipf("a file system of a chosen size needs the rights to mount one: %v", err)
				}
				t.Cleanup(func() { _ = syscall.Unmount(out, syscall.MNT_DETACH) })
				if err := l.run(t.Context(), dir, j.next(dir)); err != nil {
					var failed *exec.ExitError
					if !errors.As(err, &failed) || failed.ExitCode() != 1 || !strings.Contains(err.Error(), "no space left on device") {
						t.Errorf("with room for %d bytes: %v", room, err)
					}
				}
				if err := syscall.Mount("tmpfs", out, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", 4*size+64<<20)); err != nil {
					t.Fatal(err)
				}
				l.finish(t, dir, &j, want, fmt.Sprintf("with room for %d bytes, then more", room))
			}
		})
	}
}

// A lab holds the command and the inputs that all jobs share.
type lab struct{ program, in string }

func newLab(t *testing.T) *lab {
	t.Helper()
	l := &lab{program: filepath.Join(t.TempDir(), "farfield"), in: t.TempDir()}
	build := exec.Command("go", "build", "-o", l.program, "./cmd/farfield")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	var text, records strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, "line %d of a text, %x\n", i, i*i*7919)
		fmt.Fprintf(&records, "{\"text\": \"record %d, %x\"}\n", i, i*i*104729)
	}
	for name, s := range map[string]string{"text": text.String(), "records.jsonl": records.String()} {
		if err := os.WriteFile(filepath.Join(l.in, name), []byte(s), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.run(t.Context(), l.in, strings.Fields("train --data text --out run --preset tiny --context 32 --steps 5 "+shape)); err != nil {
		t.Fatal(err)
	}
	return l
}

// folder returns a fresh folder with the inputs of the lab in the folder in, and an empty folder out.
func (l *lab) folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := errors.Join(os.Symlink(l.in, filepath.Join(dir, "in")), os.Mkdir(filepath.Join(dir, "out"), 0o777)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// run runs farfield in a folder. Its error has what the command printed; when ctx ends, the process is killed.
func (l *lab) run(ctx context.Context, dir string, args []string) error {
	c := exec.CommandContext(ctx, l.program, args...)
	var stderr bytes.Buffer
	c.Dir, c.Stderr = dir, &stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("farfield %s: %w: %s", strings.Join(args, " "), err, stderr.Bytes())
	}
	return nil
}

// next returns the command that begins a job in a folder, or continues it.
func (j *job) next(dir string) []string {
	if j.begun != "" {
		if _, err := os.Stat(filepath.Join(dir, j.begun)); err == nil {
			return strings.Fields(j.resume)
		}
	}
	return strings.Fields(j.command)
}

// reference returns the results of a job that nothing disturbs, and the time that it takes.
func (l *lab) reference(t *testing.T, j *job) (map[string]string, time.Duration) {
	t.Helper()
	dir := l.folder(t)
	start := time.Now()
	if err := l.run(t.Context(), dir, j.next(dir)); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	results := j.read(t, dir)
	if len(results) == 0 {
		t.Fatalf("%s: no results", j.name)
	}
	return results, took
}

// finish runs a job to its end and compares its results with those of work that nothing disturbed.
func (l *lab) finish(t *testing.T, dir string, j *job, want map[string]string, when string) {
	t.Helper()
	if err := l.run(t.Context(), dir, j.next(dir)); err != nil && !strings.Contains(err.Error(), "finished") {
		t.Errorf("%s: %v", when, err)
		return
	}
	got := j.read(t, dir)
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s: %s differs from that of undisturbed work", when, name)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s: %s is left over", when, name)
		}
	}
}

// read returns the results of a job in a folder, without what depends on the clock.
func (j *job) read(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, pattern := range j.results {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				t.Fatal(err)
			}
			list[name] = string(elapsed.ReplaceAll(text, nil))
		}
	}
	return list
}
