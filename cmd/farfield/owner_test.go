package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/train"
)

// process is a process of this program.
type process struct {
	*exec.Cmd
	out, errs bytes.Buffer
}

// start starts the program as another process.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	p := &process{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), "FARFIELD_AS_PROGRAM=1")
	p.Stdout, p.Stderr = &p.out, &p.errs
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill() })
	return p
}

// appears waits for a file.
func (p *process) appears(t *testing.T, path string) {
	t.Helper()
	for {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if p.Process.Signal(syscall.Signal(0)) != nil {
			t.Fatalf("ended: %s", p.errs.String())
		}
		time.Sleep(time.Millisecond)
	}
}

func TestSignalsSaveTheRun(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("no signals")
	}
	root, data := t.TempDir(), textFile(t)
	signals := map[string]syscall.Signal{"interrupt": syscall.SIGINT, "terminate": syscall.SIGTERM, "hang up": syscall.SIGHUP}
	if signal.Ignored(syscall.SIGHUP) { // under nohup a run goes on
		delete(signals, "hang up")
	}
	runs := map[string]*process{}
	for name := range signals {
		runs[name] = start(t, littleRun(data, filepath.Join(root, name), "--steps", "1000000", "--save-every", "0", "--eval-every", "0")...)
	}
	for name, p := range runs {
		dir := filepath.Join(root, name)
		p.appears(t, filepath.Join(dir, "events.out.tfevents.0.farfield"))
		refuses(t, "is in use by process", "train", "--resume", "--out", dir)
		for { // until there are updates to lose
			if info, err := os.Stat(filepath.Join(dir, "metrics.jsonl")); err == nil && info.Size() > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := p.Process.Signal(signals[name]); err != nil {
			t.Fatal(err)
		}
		if name == "hang up" { // a second is not the end
			_ = p.Process.Signal(syscall.SIGHUP)
		}
		_ = p.Wait()
		if p.ProcessState.ExitCode() != env.StatusInterrupted || !strings.Contains(p.errs.String(), "continues\n") {
			t.Errorf("%s: status %d, %s", name, p.ProcessState.ExitCode(), p.errs.String())
		}
		if _, err := os.Stat(filepath.Join(dir, "ckpt", "latest")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, lock.FolderLockName)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the lock stays: %v", name, err)
		}
	}
}

// Whatever writes a folder or a file in steps is refused in one line where another
// process writes it, and changes nothing there.
func TestFoldersHaveOneOwner(t *testing.T) {
	root, data := t.TempDir(), textFile(t)
	seeds := filepath.Join(root, "seeds")
	works(t, littleRun(data, seeds, "--seeds", "1,2", "--steps", "1")...)
	in := written(t, "in.safetensors", made(t, "q", random(1, 40), 1, 10, 4), made(t, "k", random(2, 40), 1, 10, 4), made(t, "v", random(3, 40), 1, 10, 4))
	stream := []string{"attend", "--mechanism", "fastmax", "--causal", "--stream", in}
	for _, c := range []struct {
		dir, file string
		args      []string
	}{
		{"run", "", littleRun(data, filepath.Join(root, "run"))},
		{"new seeds", "", littleRun(data, filepath.Join(root, "new seeds"), "--seeds", "2")},
		{"seeds", "", []string{"train", "--resume", "--out", seeds}},
		{"seeds/seed-2", "", []string{"train", "--resume", "--out", filepath.Join(seeds, "seed-2")}},
		{"seeds/seed-1", "", []string{"train", "--resume", "--out", filepath.Join(seeds, "seed-1"), "--steps", "3"}},
		{"data/listops", "", []string{"data", "generate", "listops", "--folder", filepath.Join(root, "data"), "--train", "1", "--valid", "1", "--test", "1"}},
		{"demo", "", []string{"demo", "--out", filepath.Join(root, "demo")}},
		{"texts", "saved", []string{"generate", "--model", filepath.Join(seeds, "seed-1"), "--save", filepath.Join(root, "texts", "saved")}},
		{"streams", "o.npy", append(stream, filepath.Join(root, "streams", "o.npy"))},
		{"streams", "kept", append(stream, filepath.Join(root, "streams", "p.npy"), "--checkpoint", filepath.Join(root, "streams", "kept"))},
	} {
		dir := filepath.Join(root, c.dir)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		before := below(t, dir)
		take := func() (*lock.Lock, error) { return lock.LockFolder(dir) }
		if c.file != "" {
			take = func() (*lock.Lock, error) { return lock.LockFile(filepath.Join(dir, c.file)) }
		}
		owner, err := take()
		if err != nil {
			t.Fatal(err)
		}
		refuses(t, "is in use by this process", c.args...)
		owner.Release()
		if after := below(t, dir); !reflect.DeepEqual(before, after) {
			t.Errorf("%v changed %v to %v", c.args, before, after)
		}
	}
}

// below lists the files below dir.
func below(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		list = append(list, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A folder that cannot be written is a failure, not bad input, whatever the verb.
func TestUnwritableFolderIsAFailure(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs a folder that nothing can be written into, also by root")
	}
	in := written(t, "in.npz", made(t, "q", random(1, 40), 1, 10, 4), made(t, "k", random(2, 40), 1, 10, 4), made(t, "v", random(3, 40), 1, 10, 4))
	tensors := written(t, "in.safetensors", made(t, "q", random(1, 40), 1, 10, 4), made(t, "k", random(2, 40), 1, 10, 4), made(t, "v", random(3, 40), 1, 10, 4))
	for _, args := range [][]string{
		littleRun(textFile(t), "/sys/run"),
		littleRun(textFile(t), "/sys/run", "--seeds", "2"),
		{"attend", "--mechanism", "fastmax", in, "/sys/o.npz"},
		{"attend", "--mechanism", "fastmax", "--causal", "--stream", tensors, "/sys/o.npy"},
		{"data", "generate", "listops", "--folder", "/sys/data", "--train", "1", "--valid", "1", "--test", "1"},
		{"demo", "--out", "/sys/demo"},
		{"generate", "--model", "none", "--save", "/sys/text"},
	} {
		status, out, errs := command(t, args...)
		if status != env.StatusFailure || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, ": cannot be written: ") {
			t.Errorf("farfield %s: status %d\nstdout %q\nstderr %q", strings.Join(args, " "), status, out, errs)
		}
	}
}

// full is a device without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestResultsThatCannotBeWrittenAreAFailure(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"--version", "--help", "train --help", "data list", "inspect", "plan --mechanism fastmax --json", "completion bash"} {
		var errs bytes.Buffer
		e := &env.Env{Context: context.Background(), Stdin: strings.NewReader(""), Stdout: full{}, Stderr: &errs}
		if status := farfield().RunVerb(strings.Fields(args), e); status != env.StatusFailure || strings.Count(errs.String(), "\n") != 1 || !strings.Contains(errs.String(), "no space left") {
			t.Errorf("farfield %s: status %d, %q", args, status, errs.String())
		}
	}
}

func TestFlagsTakeFiniteNumbers(t *testing.T) {
	t.Parallel()
	free := filepath.Join(t.TempDir(), "free")
	data := textFile(t)
	for _, value := range []string{"nan", "inf", "-Inf", "1e999"} {
		for _, flag := range []string{"--lr", "--min-lr", "--weight-decay", "--beta2", "--clip", "--dropout", "--attention-dropout"} {
			refuses(t, flag+": \""+value+"\" is not a finite number", littleRun(data, free, flag+"="+value)...)
		}
		refuses(t, "--temperature: ", "generate", "--model", "none", "--temperature="+value)
		refuses(t, "--top-p: ", "generate", "--model", "none", "--top-p="+value)
	}
	refuses(t, `--lr: "fast" is not a finite number`, littleRun(data, free, "--lr=fast")...)
	config := textOf(t, `{"version":2,"lr":1e999}`)
	refuses(t, "lr", "train", "--config", config, "--out", free)
	refuses(t, "scale=nan", littleRun(data, free, "--set", "scale=nan")...)
	if _, err := os.Stat(free); err == nil {
		t.Error("a folder was made")
	}
}

// textOf writes a file.
func textOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTasksOfFilesNeedData(t *testing.T) {
	t.Parallel()
	free := filepath.Join(t.TempDir(), "free")
	for _, name := range []string{"file", "wav", "picture"} {
		refuses(t, "--data is missing: task "+name, "train", "--task", name, "--out", free)
	}
}

func TestFinishedRunIsLengthened(t *testing.T) {
	t.Parallel()
	root, data := t.TempDir(), textFile(t)
	dir, again := trained(t), filepath.Join(root, "again")
	refuses(t, "steps: 7 is not from 8, the updates that the run has made", "train", "--resume", "--out", dir, "--steps", "7")
	refuses(t, "leave out --lr", "train", "--resume", "--out", dir, "--steps", "9", "--lr", "1")
	if out := works(t, "train", "--resume", "--out", dir, "--steps", "11", "--sample-tokens", "3"); !strings.Contains(out, "updates 9 to 11 of") {
		t.Errorf("it prints\n%s", out)
	}
	works(t, "train", "--config", filepath.Join(dir, "config.json"), "--out", again, "--sample-tokens", "3")
	if !reflect.DeepEqual(metrics(t, dir), metrics(t, again)) {
		t.Error("the recorded configuration does not repeat the lengthened run")
	}

	seeds := filepath.Join(root, "seeds")
	works(t, littleRun(data, seeds, "--seeds", "2", "--steps", "2", "--sample-tokens", "3")...)
	works(t, "train", "--resume", "--out", seeds, "--steps", "3", "--sample-tokens", "3")
	for _, run := range runs.SeedRuns(seeds) {
		if c, err := train.RunConfig(run); err != nil || c.Steps != 3 {
			t.Errorf("%s: %d updates, %v", run, c.Steps, err)
		}
	}
}

func TestOutputOfTwoNamesHasOneOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	name, link := filepath.Join(dir, "out"), filepath.Join(dir, "link")
	if err := os.Symlink(name, link); err != nil {
		t.Skip(err)
	}
	f, l, err := env.OwnFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var held *lock.HeldError
	if _, _, err := env.OwnFile(link); !errors.As(err, &held) {
		t.Errorf("error is %v, want %T", err, held)
	}
	f.Close()
	l.Release()
	if f, l, err = env.OwnFile(link); err != nil {
		t.Fatal(err)
	}
	f.Close()
	l.Release()
}
