package train

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

func TestCurvesHaveAPointForEveryColumn(t *testing.T) {
	y := SampleCurve(3, func(i int) (int, float64) { return []int{33, 34, 128}[i], []float64{1, 3, 5}[i] }, 128)
	if len(y) != curveWidth || y[0] != 2 || y[16] != 2 || y[62] != 2 || y[63] != 5 {
		t.Errorf("the curve is %v", y)
	}
}

// The preset of pictures standardises patches. Pixels are tokens, which nothing standardises
// unless a flag asks for it.
func TestPixelsAreNotStandardised(t *testing.T) {
	yes := true
	for _, c := range []struct {
		command Command
		want    bool
	}{
		{Command{Task: "picture", Data: t.TempDir()}, true},
		{Command{Task: "picture", Data: t.TempDir(), TaskSet: map[string]string{"as": "pixels"}}, false},
		{Command{Task: "mnist", TaskSet: map[string]string{"as": "pixels"}, Standardise: &yes}, true},
	} {
		if got, err := c.command.configure(); err != nil || got.Standardise != c.want {
			t.Errorf("%v: standardise is %t, %v", c.command.TaskSet, got.Standardise, err)
		}
	}
}

// The expressions of a preset grow, unless what is asked for leaves no shorter ones; short
// samples of an update have as many tokens as whole ones. The run is filed with these sizes.
func TestPresetsGrowWhereTheyCan(t *testing.T) {
	two, four, sixteen, none, yes := 2, 4, 16, 0, true
	for name, x := range map[string]struct {
		command        Command
		context, batch int
	}{
		"preset":            {Command{}, 32, 512},
		"--batch 2":         {Command{Batch: &two}, 32, 32},
		"20 to 60 tokens":   {Command{TaskSet: map[string]string{"above": "20", "below": "60"}, Batch: &four}, 32, 8},
		"10 to 30 tokens":   {Command{TaskSet: map[string]string{"above": "10", "below": "30"}}, 0, 0},
		"--lra-quirk":       {Command{LRAQuirk: &yes}, 0, 0},
		"--first-context 0": {Command{FirstContext: &none}, 0, 512},
		"--first-batch 16":  {Command{FirstBatch: &sixteen}, 32, 16},
	} {
		x.command.Task, x.command.Width, x.command.Heads = "listops", new(8), &two
		c, err := x.command.configure()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		src, err := c.OpenTask()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		trainer, err := train.New(c, src, dir)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		trainer.Close()
		c, err = runs.ReadRunConfig(dir)
		if err != nil || c.FirstContext != x.context || c.FirstBatch != x.batch {
			t.Errorf("%s: begins with %d samples of %d tokens, want %d of %d (%v)", name, c.FirstBatch, c.FirstContext, x.batch, x.context, err)
		}
	}
}

// The former ends of a lengthened run do not hold for another number of updates.
func TestEpochsReplaceFormerEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"version":2,"steps":6,"lengthened":[4]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	n := 3
	for _, c := range []struct {
		command Command
		want    int
	}{
		{Command{Config: path}, 1},
		{Command{Config: path, Steps: &n}, 0},
		{Command{Config: path, Epochs: &n}, 0},
	} {
		if got, err := c.command.configure(); err != nil || len(got.Lengthened) != c.want {
			t.Errorf("lengthened is %v, %v; want %d", got.Lengthened, err, c.want)
		}
	}
}

// Flags that name other training samples drop the mean of the configuration's run, data alone
// give a note.
func TestMeanIsOfTheTrainingSamples(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"version":2,"task":"shapes","standardise":true,"input_mean":[5],"input_deviation":[2]}`), 0o666); err != nil {
		t.Fatal(err)
	}
	yes, seed := true, uint64(9)
	for _, x := range []struct {
		command Command
		want    int
	}{{Command{Config: path}, 1}, {Command{Config: path, Standardise: &yes}, 0}, {Command{Config: path, DataSeed: &seed}, 0}} {
		c, err := x.command.configure()
		if err != nil || len(c.InputMean) != x.want || len(c.InputDeviation) != x.want {
			t.Errorf("the mean is %v, %v", c.InputMean, err)
		}
		x.command.Data = "new"
		if note := x.command.describeKept(&c); (note == "") != (x.want == 0) {
			t.Errorf("the note is %q", note)
		}
	}
}

// A run that starts from a model keeps its tokens, also where its configuration names the model.
func TestVocabularyIsRefusedBesideAConfiguredModel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, []byte(`{"version":2,"task":"file","task_set":{"data":"t.tsv"},"init":"model"}`), 0o666); err != nil {
		t.Fatal(err)
	}
	command := Command{Config: path}
	if _, err := command.configure(); err != nil {
		t.Error(err)
	}
	command.Vocabulary = "bpe"
	if _, err := command.configure(); err == nil || !strings.Contains(err.Error(), "has tokens of its own") {
		t.Errorf("error is %v", err)
	}
}

// A run in a folder that its task reads would be data of its own.
func TestRunInAFolderThatItsTaskReadsIsRefused(t *testing.T) {
	root := t.TempDir()
	at := func(name string) string { return filepath.Join(root, filepath.FromSlash(name)) }
	for _, dir := range []string{"whole/a", "whole/b", "other", "split/train/a", "split/Test", "linked/a"} {
		if err := os.MkdirAll(at(dir), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink(at("other"), at("linked/more")), os.Symlink(at("other"), at("split/beside"))); err != nil {
		t.Skip(err)
	}
	const outside = "; name a folder outside"
	for _, c := range []struct{ task, ask, data, out, want string }{
		{"series", "", "whole", "whole/run/001", " lies in the folder of --data "},
		{"series", "class", "whole", "whole/run/001", " lies in the folder of --data "},
		{"series", "each", "whole", "whole/run/001", ""}, // reads tables alone
		{"picture", "", "whole", "whole/run", outside},
		{"wav", "", "whole", "whole/a/run", outside},
		{"fasta", "", "whole", "whole/run", ""},
		{"file", "", "linked", "other/run", " lies in " + at("linked/more") + ", a folder of --data"},
		{"bytelm", "", "linked", "other/run", outside},
		{"bytelm", "", "linked", "run", ""},
		{"file", "", "split", "split/Test/run", outside},
		{"file", "", "split", "split/train/a/run", outside},
		{"file", "", "split", "split/run", ""},
		{"file", "", "split", "other/run", ""}, // through a link beside train
		{"bytelm", "", "split", "split/run", outside},
	} {
		config := train.Config{Task: c.task, TaskSet: map[string]string{"data": at(c.data), "ask": c.ask}}
		if err := checkOutside(&config, at(c.out)); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v", c, err)
		}
	}
}

// The run whose configuration is refused is one of its seeds.
func TestResumedSeedWithADeviceIsNamed(t *testing.T) {
	if infile.CheckStored(os.DevNull) == nil {
		t.Skip("no devices")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "seed-1", "config.json")
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o777), os.WriteFile(path, fmt.Appendf(nil, `{"version":2,"task":"bytelm","task_set":{"data":%q}}`, os.DevNull), 0o666)); err != nil {
		t.Fatal(err)
	}
	command := Command{Resume: true, Out: dir}
	if _, err := command.config(); err == nil || !strings.Contains(err.Error(), path+": data: "+os.DevNull+" is a device") {
		t.Errorf("error is %v", err)
	}
}

// Descriptors of the process and pipes are not there to continue from, other files are.
func TestPrintedCommandNamesDataThatAreThere(t *testing.T) {
	if !filepath.IsAbs("/dev/stdin") {
		t.Skip("no such paths")
	}
	for data, want := range map[string]string{"/dev/stdin": " --data FILE", "/dev/fd/63": " --data FILE", "/proc/self/fd/0": " --data FILE", "/dev/shm/none.txt": "", "/data/notes.txt": ""} {
		command := Command{Out: "run"}
		if got := command.resumeCommand(data); got != "farfield train --resume --out run"+want {
			t.Errorf("%s: %s", data, got)
		}
	}
}

func TestRunsAreNumbered(t *testing.T) {
	dir := t.TempDir()
	for _, want := range []string{"001", "002"} {
		path, err := freeRun(dir)
		if err != nil || path != filepath.Join(dir, want) {
			t.Fatalf("the free run is %s, %v", path, err)
		}
		if err := os.Mkdir(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

// lostBaselines is a source that has lost a training sample.
type lostBaselines struct{ task.Source }

func (lostBaselines) Baselines(int) ([]task.Baseline, error) {
	return nil, errors.New("x.txt:\nis empty")
}

// The first line of a training counts tokens by their name, and skipped files by the reason.
func TestDescriptionOfTexts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a": strings.Repeat("some text ", 20), "b": "caf\xe9", "c": "\x00"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, x := range []struct {
		name, vocabulary, want string
	}{
		{"charlm", "", "1 files, 1 skipped as binary, 1 as not UTF-8 (bytelm reads them), 180 chars to learn from"},
		{"bytelm", "bpe=258", " tokens to learn from"},
	} {
		command := Command{Task: x.name, Data: dir, Vocabulary: x.vocabulary}
		c, err := command.configure()
		if err != nil {
			t.Fatal(err)
		}
		c.Model.Width, c.Model.Heads, c.Model.Context = 8, 2, 8
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		trainer, err := train.New(c, src, "")
		if err != nil {
			t.Fatal(err)
		}
		defer trainer.Close()
		var out bytes.Buffer
		describeRun(&env.Env{Stdout: &out}, trainer, dir)
		if line, _, _ := strings.Cut(out.String(), "\n"); !strings.Contains(line, x.want) {
			t.Errorf("the first line is %s", line)
		}
	}
}

// The score of a run is printed and filed where its baselines fail.
func TestRunIsFiledWhereBaselinesFail(t *testing.T) {
	command := Command{Task: "induction", TaskSet: map[string]string{"length": "8", "symbols": "3"}}
	c, err := command.configure()
	if err != nil {
		t.Fatal(err)
	}
	c.Model.Width, c.Model.Heads, c.Batch, c.Steps, c.WarmUp, c.EvalSamples, c.FinalSamples = 8, 2, 4, 1, 0, 9, 9
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	trainer, err := train.New(c, lostBaselines{src}, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer trainer.Close()
	var out bytes.Buffer
	e := &env.Env{Context: t.Context(), Stdout: &out, Stderr: io.Discard}
	r, err := command.one(e, trainer, dir)
	if err == nil {
		err = r.Print(e)
	}
	if err != nil || r.Verdict != nil || !strings.Contains(out.String(), "baselines   none: x.txt: is empty\n") {
		t.Errorf("%v, printed\n%s", err, out.String())
	}
	if r, err := runs.ReadResult(dir); err != nil || r == nil || r.BaselinesError != "x.txt: is empty" || r.Samples != 9 {
		t.Errorf("the result is %+v, %v", r, err)
	}
}
