package train

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/internal/token"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
)

var write = flag.Bool("write", false, "write the run of testdata")

// names lists a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// interrupted copies the folder of a run as it is when a step has been made.
func interrupted(t *testing.T, c Config, step int) string {
	t.Helper()
	root := t.TempDir()
	dir, copied := filepath.Join(root, "run"), filepath.Join(root, "copy")
	trainer, err := New(c, littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err = trainer.Train(ctx, Observer{Step: func(s Step) {
		if s.Step == step {
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return copied
}

// copyOf returns a copy of a folder.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// beforeTheEnd returns the folder of a run that was killed after its last checkpoint.
func beforeTheEnd(t *testing.T, c Config) string {
	t.Helper()
	root := t.TempDir()
	dir, copied := filepath.Join(root, "run"), filepath.Join(root, "copy")
	trainer, err := New(c, littleText(t), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	_, err = trainer.Train(context.Background(), Observer{Save: func(string) {
		if trainer.StepsDone() == c.Steps {
			if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(copied, lock.FolderLockName)); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return copied
}

// A finished run keeps its last checkpoint, to be lengthened, and the best; of one update, these
// share their weights.
func TestFinishedRunKeepsWhatIsRead(t *testing.T) {
	t.Parallel()
	src := kinds()["regression"]
	c := littleTask(src, "softmax")
	c.EvalEvery, c.SaveEvery = 5, 5
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := New(c, src, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	last, err := latestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := filepath.Dir(last)
	if got, want := names(t, all), []string{bestName, latestFile, filepath.Base(last)}; !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	for _, path := range []string{last, filepath.Join(all, bestName)} {
		if _, err := checkpoint.Read(path); err != nil {
			t.Error(err)
		}
	}
	a, err := os.Stat(filepath.Join(last, model.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.Stat(filepath.Join(all, bestName, model.WeightsFile))
	if err != nil {
		t.Fatal(err)
	}
	if isShared := os.SameFile(a, b); isShared != trainer.best.IsAt(trainer.step) {
		t.Errorf("the best is of update %d of %d, shared %t", trainer.best.Step, trainer.step, isShared)
	}
}

func TestKilledRunContinues(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	want, _ := run(t, c)
	appendTo := func(t *testing.T, path, text string) {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	parts := map[int]string{4: interrupted(t, c, 4), 17: interrupted(t, c, 17), 25: interrupted(t, c, 25)}
	for _, tc := range []struct {
		name   string
		step   int
		damage func(t *testing.T, dir string)
	}{
		{"between checkpoints", 17, func(*testing.T, string) {}},
		{"before the first checkpoint", 4, func(*testing.T, string) {}},
		{"in a line of the metrics", 17, func(t *testing.T, dir string) {
			appendTo(t, filepath.Join(dir, metricsFile), `{"step":18,"lo`)
		}},
		{"in a checkpoint", 25, func(t *testing.T, dir string) {
			temp := filepath.Join(dir, checkpointsFolder, ".step-00000030")
			if err := os.Mkdir(temp, 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(temp, model.WeightsFile), []byte("half"), 0o666); err != nil {
				t.Fatal(err)
			}
		}},
		{"before latest names the checkpoint", 25, func(t *testing.T, dir string) {
			all := filepath.Join(dir, checkpointsFolder)
			if err := os.CopyFS(filepath.Join(all, "step-00000030"), os.DirFS(filepath.Join(all, "step-00000020"))); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := copyOf(t, parts[tc.step])
			tc.damage(t, dir)
			resume(t, dir)
			same(t, dir, want)
			if got := names(t, filepath.Join(dir, checkpointsFolder)); !slices.Equal(got, []string{"latest", "step-00000030"}) {
				t.Errorf("the folder of checkpoints holds %v", got)
			}
		})
	}
}

// killedRun is the environment variable that makes TestRunKilledBySignalContinues the run that is
// killed.
const killedRun = "FARFIELD_TEST_KILLED_RUN"

func TestRunKilledBySignalContinues(t *testing.T) {
	t.Parallel()
	c := little("softmax")
	c.Steps, c.SaveEvery, c.EvalEvery = 24, 1, 3
	most := 3 // kills
	if suite.IsLong() {
		c.Steps, most = 40, 5
	}
	if dir := os.Getenv(killedRun); dir != "" {
		if _, err := os.Stat(dir); err == nil {
			resume(t, dir)
			return
		}
		trainer, err := New(c, littleText(t), dir)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, _ := run(t, c)
	dir := filepath.Join(t.TempDir(), "run")
	kills, latest := 0, filepath.Join(dir, checkpointsFolder, latestFile)
	for finished := false; !finished; {
		cmd := exec.Command(os.Args[0], "-test.run=^TestRunKilledBySignalContinues$")
		cmd.Env = append(os.Environ(), killedRun+"="+dir)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Skip(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		// After its first checkpoint nearly every moment of a process is in the middle of another.
		var kill <-chan time.Time
		poll := time.NewTicker(time.Millisecond)
		var before time.Time
		if info, err := os.Stat(latest); err == nil {
			before = info.ModTime()
		}
		for ended := false; !ended; {
			select {
			case err := <-done:
				if ended, finished = true, true; err != nil {
					t.Fatalf("after %d kills the run failed: %s", kills, out.String())
				}
			case <-poll.C:
				if info, err := os.Stat(latest); err == nil && kill == nil && kills < most && !info.ModTime().Equal(before) {
					wait := time.Duration(rng.New(1).Intn(uint64(kills), 20)) * time.Millisecond
					if kills == 0 { // a fast run ends within a few ms
						wait = 0
					}
					kill = time.After(wait)
				}
			case <-kill:
				_ = cmd.Process.Kill()
				<-done
				ended = true
				kills++
			}
		}
		poll.Stop()
	}
	t.Logf("killed %d times", kills)
	if kills == 0 {
		t.Error("the run ended before a kill")
	}
	same(t, dir, want)
}

func TestDamagedCheckpointIsRefused(t *testing.T) {
	t.Parallel()
	text, whole := littleText(t), beforeTheEnd(t, little("softmax"))
	change := func(name string, f func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			old, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, f(old), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	replace := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.Replace(string(b), old, new, 1)) }
	}
	at := filepath.Join(checkpointsFolder, "step-00000030") + string(filepath.Separator)
	const back = "to go back, write step-00000020 into"
	for _, tc := range []struct {
		name   string
		damage func(*testing.T, string)
		wants  []string
		load   bool // Load finds it, too
	}{
		{"a bit of the weights", change(at+model.WeightsFile, flip), []string{model.WeightsFile, "damaged", "SHA-256", back}, true},
		{"a byte less of the optimiser", change(at+optimFile, cut), []string{optimFile, "damaged", "bytes", back}, true},
		{"a bit of the vocabulary", change(at+vocabFile, flip), []string{vocabFile, "damaged", back}, true},
		{"the manifest's step", change(at+manifestFile, replace(`"step": 30`, `"step": 29`)), []string{manifestFile, "damaged", back}, true},
		{"half a manifest", change(at+manifestFile, func(b []byte) []byte { return b[:len(b)/2] }), []string{manifestFile, "damaged", back}, true},
		{"another version", change(at+manifestFile, replace(`"version": 2`, `"version": 3`)), []string{manifestFile, "version is 3", "reads 2"}, true},
		{"another format", change(at+manifestFile, replace("farfield", "nearfield")), []string{manifestFile, "nearfield"}, true},
		{"no weights", func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Join(dir, at+model.WeightsFile)); err != nil {
				t.Fatal(err)
			}
		}, []string{model.WeightsFile, back}, true},
		{"latest", change(filepath.Join(checkpointsFolder, latestFile), func([]byte) []byte { return []byte("../../etc") }), []string{"latest", `"../../etc"`}, true},
		{"the run's version", change(configFile, replace(`"version": 2`, `"version": 9`)), []string{configFile, "version is 9"}, true},
		{"the run's model", change(configFile, replace(`"layers": 1`, `"layers": 2`)), []string{configFile, "model.layers is 2"}, true},
		{"a field that is none", change(configFile, replace(`"seed"`, `"sead"`)), []string{configFile, "sead"}, true},
		{"a digit of the metrics", change(metricsFile, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`{"step":7,"eval":"look","split":"valid"`), []byte(`{"step":7,"eval":"look","split":"walid"`), 1)
		}), []string{metricsFile, "line 8: damaged: its CRC-32C is", "without this line, the run goes on"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := copyOf(t, whole)
			tc.damage(t, dir)
			_, err := Resume(text, dir)
			check := func(err error) {
				t.Helper()
				for _, want := range tc.wants {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error is %v, does not say %s", err, want)
					}
				}
			}
			check(err)
			if _, _, err := loadModel(dir); tc.load {
				check(err)
			} else if err != nil {
				t.Errorf("the model does not load: %v", err)
			}
		})
	}
}

// A kill between a checkpoint and the removal of others leaves those to the run that goes
// on.
func TestResumeRemovesOldCheckpoints(t *testing.T) {
	t.Parallel()
	want, score := run(t, little("softmax"))
	dir := beforeTheEnd(t, little("softmax"))
	old := filepath.Join(dir, checkpointsFolder, "step-00000001")
	if err := os.CopyFS(old, os.DirFS(filepath.Join(dir, checkpointsFolder, "step-00000020"))); err != nil {
		t.Fatal(err)
	}
	if got := resume(t, dir); got != score {
		t.Errorf("the score is %+v, want %+v", got, score)
	}
	if _, err := os.Stat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s stays: %v", old, err)
	}
	same(t, dir, want)
}

func TestRunContinuesFromAnEarlierCheckpoint(t *testing.T) {
	t.Parallel()
	want, _ := run(t, little("softmax"))
	dir := beforeTheEnd(t, little("softmax"))
	pointer := filepath.Join(dir, checkpointsFolder, latestFile)
	if err := os.WriteFile(pointer, []byte("step-00000020\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	resume(t, dir)
	same(t, dir, want)
}

// The committed run was made by a little-endian processor of 64 bits. Its last
// checkpoint, written again, is the same bytes; from the one before, training goes on
// as it did there, but for roundings.
func TestCommittedRunContinues(t *testing.T) {
	t.Parallel()
	const committed = "testdata/run"
	c := little("fastmax")
	c.Model.Width, c.Steps, c.EvalEvery = 6, 20, 10
	sentence := []byte("the cat sat on the mat and the rat sat on the cat. ")
	vocab, err := token.NewCharVocabulary(sentence)
	if err != nil {
		t.Fatal(err)
	}
	text, err := task.NewText(&task.Corpus{Name: "a sentence", Text: bytes.Repeat(sentence, 60), Files: 1}, vocab)
	if err != nil {
		t.Fatal(err)
	}
	train := func(trainer *Trainer, err error) {
		t.Helper()
		if err == nil {
			_, err = trainer.Train(context.Background(), Observer{})
		}
		if err == nil {
			err = trainer.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if *write {
		if err := os.RemoveAll(committed); err != nil {
			t.Fatal(err)
		}
		train(New(c, text, committed))
	}
	dir := filepath.Join(t.TempDir(), "run")
	if err := os.CopyFS(dir, os.DirFS(committed)); err != nil {
		t.Fatal(err)
	}
	trainer, err := Resume(text, dir)
	if err != nil {
		t.Fatal(err)
	}
	path, err := trainer.writeCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	of := filepath.Join(committed, checkpointsFolder, filepath.Base(path))
	list := names(t, of)
	// The build that wrote the committed run made no copy of the configuration.
	m, err := checkpoint.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := m.Files[runFile]; !ok {
		t.Errorf("the checkpoint has no %s", runFile)
	}
	for _, name := range []string{runFile, manifestFile} {
		if err := os.Remove(filepath.Join(path, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.WriteInto(path); err != nil {
		t.Fatal(err)
	}
	if got := names(t, path); !slices.Equal(got, list) {
		t.Errorf("the checkpoint has the files %v, written again %v", list, got)
	}
	for _, name := range list {
		want, err := os.ReadFile(filepath.Join(of, name))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(path, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: written again, other bytes (%v)", name, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, checkpointsFolder, latestFile), []byte("step-00000010\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	train(Resume(text, dir))
	got, want := rows(t, dir), rows(t, committed)
	if len(got) != len(want) {
		t.Fatalf("the metrics have %d lines, want %d", len(got), len(want))
	}
	for i := range got {
		for key, x := range want[i] {
			// Roundings of 2⁻²⁴ grow over ten updates.
			a, isNumber := got[i][key].(float64)
			if b, _ := x.(float64); isNumber && !(math.Abs(a-b) <= 1e-3*math.Abs(b)) {
				t.Errorf("line %d: %s is %v, was %v", i+1, key, a, b)
			}
		}
	}
}

func TestResumeRefusesOtherData(t *testing.T) {
	t.Parallel()
	dir, _ := run(t, little("softmax"))
	text, err := task.NewText(task.InventText(2, 3000), token.NewByteVocabulary())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(text, dir); err == nil || !strings.Contains(err.Error(), "not the data that the run began with") {
		t.Errorf("error is %v", err)
	}
}

func TestNewRefusesAFolderWithARun(t *testing.T) {
	t.Parallel()
	dir, _ := run(t, little("softmax"))
	for _, removed := range []string{"", configFile, metricsFile} {
		if err := os.Remove(filepath.Join(dir, removed)); removed != "" && err != nil {
			t.Fatal(err)
		}
		if _, err := New(little("softmax"), littleText(t), dir); err == nil || !strings.Contains(err.Error(), "holds a run already") {
			t.Errorf("without %q: error is %v", removed, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, checkpointsFolder, "step-00000030")); err != nil {
		t.Error(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, scalesFile), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := New(little("softmax"), littleText(t), dir); err == nil || !strings.Contains(err.Error(), "has scales.json") {
		t.Errorf("error is %v", err)
	}
}

// The configuration is the last file of a start. A start that ends before it leaves no
// run, and a second one succeeds.
func TestUnfinishedStartIsNoRun(t *testing.T) {
	t.Parallel()
	c := littleTask(kinds()["class"], "softmax")
	src := named{kinds()["class"], []string{"no", "\n", "yes \xff"}}
	dir := t.TempDir()
	inTheWay := filepath.Join(dir, classesFile)
	if err := os.Mkdir(inTheWay, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := New(c, src, dir); err == nil {
		t.Fatal("names of classes were written")
	}
	if _, err := os.Stat(filepath.Join(dir, configFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is a run: %v", err)
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one after the names of the first
		trainer, err := New(c, src, dir)
		if err != nil {
			t.Fatal(err)
		}
		trainer.Close()
		for _, name := range []string{configFile, metricsFile} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestCopiesOfCheckpointsStay(t *testing.T) {
	t.Parallel()
	dir := beforeTheEnd(t, little("softmax"))
	all := filepath.Join(dir, checkpointsFolder)
	last := filepath.Join(all, "step-00000020")
	for _, copied := range []string{".bak", "-good"} {
		if err := os.CopyFS(last+copied, os.DirFS(last)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(all, latestFile), []byte("step-00000020\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	resume(t, dir)
	if err := LengthenRuns(littleText(t), 60, dir); err != nil {
		t.Fatal(err)
	}
	resume(t, dir)
	want := []string{latestFile, "step-00000020-good", "step-00000020.bak", "step-00000060"}
	if got := names(t, all); !slices.Equal(got, want) {
		t.Errorf("the folder holds %v, want %v", got, want)
	}
	if err := os.CopyFS(filepath.Join(all, "step-00000050.bak"), os.DirFS(last+".bak")); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(all, "step-00000060", optimFile), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Resume(littleText(t), dir); err == nil || strings.Contains(err.Error(), "step-00000050.bak") {
		t.Errorf("error is %v", err)
	}
}

// A caller of ReadCheckpoint reads what it needs of a checkpoint, here of a run that selects no best one,
// and gets its own error back.
func TestReadCheckpointGivesItsFolder(t *testing.T) {
	t.Parallel()
	dir, _ := run(t, little("softmax"))
	latest := filepath.Join(dir, checkpointsFolder, "step-00000030")
	for _, want := range []error{nil, os.ErrInvalid} {
		calls := 0
		err := ReadCheckpoint(dir, func(found string) error {
			if calls++; found != latest {
				t.Errorf("the checkpoint is %s, want %s", found, latest)
			}
			if _, err := model.Load(found); err != nil {
				t.Error(err)
			}
			return want
		})
		if err != want || calls != 1 {
			t.Errorf("error is %v after %d calls, want %v", err, calls, want)
		}
	}
}

func TestLoadReadsTheModelThatWasScored(t *testing.T) {
	t.Parallel()
	dir, score := run(t, little("softmax"))
	for _, path := range []string{dir, filepath.Join(dir, checkpointsFolder, "step-00000030")} {
		m, vocab, err := loadModel(path)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := Evaluate(context.Background(), m, littleText(t).WithWindow(15), task.Valid, 0)
		if err != nil || got != score || vocab.Size() != 256 {
			t.Errorf("%s: score is %+v, %v, want %+v", path, got, err, score)
		}
	}
	for _, tc := range []struct{ path, want string }{
		{filepath.Join(dir, "none"), "none"},
		{t.TempDir(), "neither a run nor a checkpoint"},
		{interrupted(t, little("softmax"), 3), ErrNoCheckpoint.Error()},
	} {
		if _, _, err := loadModel(tc.path); err == nil || !strings.Contains(err.Error(), tc.want) || errors.Is(err, ErrNoCheckpoint) != (tc.want == ErrNoCheckpoint.Error()) {
			t.Errorf("%s: error is %v", tc.path, err)
		}
	}
}
