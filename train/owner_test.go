package train

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/lock"
)

func TestRunHasOneOwner(t *testing.T) {
	t.Parallel()
	c, text := little("softmax"), littleText(t)
	dir := filepath.Join(t.TempDir(), "run")
	first, err := New(c, text, dir)
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Path != dir || held.PID != os.Getpid() {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = Resume(text, dir)
	refused("resuming a run that goes on", err)
	refused("lengthening a run that goes on", LengthenRuns(text, 60, dir))
	if _, err := New(c, text, dir); !errors.Is(err, ErrRunExists) {
		t.Errorf("a new run in its folder: %v", err)
	}
	if _, err := first.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := loadModel(dir); err != nil {
		t.Errorf("reading a run that has an owner: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, lock.FolderLockName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock of a run without an owner: %v", err)
	}
	resume(t, dir)

	other := filepath.Join(t.TempDir(), "free")
	if err := os.Mkdir(other, 0o777); err != nil {
		t.Fatal(err)
	}
	owner, err := lock.LockFolder(other)
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Release()
	dir = other
	_, err = New(c, text, dir)
	refused("a new run in a folder that another owns", err)
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("the folder of another owner has %v", got)
	}
}

func TestFailedResumeGivesTheFolderBack(t *testing.T) {
	t.Parallel()
	dir, _ := run(t, little("softmax"))
	path := filepath.Join(dir, checkpointsFolder, latestFile)
	if err := os.WriteFile(path, []byte("step-00000099\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := Resume(littleText(t), dir); err == nil || !strings.Contains(err.Error(), "step-00000099") {
			t.Errorf("error is %v", err)
		}
	}
}

// Whatever the end of the metrics is, and however much of it is lost, the run goes on.
func TestTornMetricsAreCutOff(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	want, _ := run(t, c)
	part := interrupted(t, c, 17)
	for name, change := range map[string]func([]byte) []byte{
		"a row that is begun":   func(b []byte) []byte { return append(b, `{"step":18,"lo`...) },
		"zeros":                 func(b []byte) []byte { return append(b, make([]byte, 5000)...) },
		"half a row is missing": func(b []byte) []byte { return b[:len(b)-40] },
		"most is missing":       func(b []byte) []byte { return b[:300] },
		"all is missing":        func([]byte) []byte { return nil },
		"line 5 is missing": func(b []byte) []byte {
			lines := bytes.SplitAfter(b, []byte("\n"))
			return bytes.Join(append(lines[:4:4], lines[5:]...), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copyOf(t, part)
			for _, file := range []string{metricsFile, eventsFile} {
				path := filepath.Join(dir, file)
				old, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, change(old), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			resume(t, dir)
			at := filepath.Join(checkpointsFolder, "step-00000030", "model.safetensors")
			got, err := os.ReadFile(filepath.Join(dir, at))
			if err != nil {
				t.Fatal(err)
			}
			if whole, err := os.ReadFile(filepath.Join(want, at)); err != nil || !bytes.Equal(got, whole) {
				t.Errorf("the model is another one, %v", err)
			}
			h, err := ReadHistory(dir)
			if err != nil {
				t.Fatal(err)
			}
			last := 0
			for _, s := range h.Steps {
				if s.Step <= last {
					t.Fatalf("update %d follows %d", s.Step, last)
				}
				last = s.Step
			}
			if last != 30 {
				t.Errorf("the last update of the metrics is %d", last)
			}
		})
	}
}

// A row that a full disk has refused is written by the next call.
func TestRefusedRowIsWrittenByTheNextCall(t *testing.T) {
	t.Parallel()
	want, _ := run(t, little("softmax"))
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(little("softmax"), littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	events := trainer.metrics.events
	readOnly, err := os.Open(filepath.Join(dir, eventsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	trainer.metrics.events = &growingFile{readOnly, events.size}
	if _, err := trainer.Train(context.Background(), Observer{}); err == nil || trainer.StepsDone() != 1 {
		t.Errorf("%d updates, %v", trainer.StepsDone(), err)
	}
	trainer.metrics.events = events
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	same(t, dir, want)
}

// The configuration of a lengthened run repeats the whole run: its metrics, weights,
// choices and the state of its optimiser.
func TestLengthenedRunRepeats(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	c.Schedule, c.EvalEvery, c.SaveEvery = CosineSchedule, 7, 9
	c.Steps = 12
	dir, _ := run(t, c)
	if err := LengthenRuns(littleText(t), 30, dir); err != nil {
		t.Fatal(err)
	}
	if err := LengthenRuns(littleText(t), 30, dir); err != nil {
		t.Errorf("lengthening to the same number: %v", err)
	}
	for _, tc := range []struct {
		steps int
		want  string
	}{
		{40, "steps: 40, but the run has made 12 of its 30 updates; resume it to its end first"},
		{12, "steps: 12, but the run has made 12 of its 30 updates; resume it to its end first"},
	} {
		if err := LengthenRuns(littleText(t), tc.steps, dir); err == nil || err.Error() != dir+": "+tc.want {
			t.Errorf("error is %v, want %s", err, tc.want)
		}
	}
	resume(t, dir)
	if err := LengthenRuns(littleText(t), 29, dir); err == nil || err.Error() != dir+": steps: 29 is not from 30, the updates that the run has made, to 1099511627776" {
		t.Errorf("error is %v", err)
	}
	if err := LengthenRuns(littleText(t), 35, dir); err != nil {
		t.Fatal(err)
	}
	resume(t, dir)

	long, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	whole, _ := run(t, long)
	same(t, dir, whole)
	// Until the first end, the rates are of the short run, after it of longer ones.
	h, err := ReadHistory(dir)
	if err != nil {
		t.Fatal(err)
	}
	if floor := h.Steps[11].Rate; floor > 2*c.MinRate || h.Steps[12].Rate < 2*floor {
		t.Errorf("rates %v and %v at the end of %d updates and behind it", floor, h.Steps[12].Rate, c.Steps)
	}
	long.Lengthened = []int{30, 12}
	if _, err := New(long, littleText(t), ""); err == nil || !strings.HasPrefix(fault.InFile(err).Error(), "lengthened: [30 12] do not ascend") {
		t.Errorf("error is %v", err)
	}
}
