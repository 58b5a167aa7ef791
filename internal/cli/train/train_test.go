package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
