package reproduce

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
)

// A training of two updates is asked at all lengths, and its table says so.
func TestNeedlesAreAskedAtEveryLength(t *testing.T) {
	saved := needleAsked
	needleAsked = needleAsked[:2]
	defer func() { needleAsked = saved }()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, task.InventText(1, 1<<19).Text, 0o666); err != nil {
		t.Fatal(err)
	}
	var tiny lessons = func(o *Options) ([]*lesson, error) {
		list, err := needleLessons(o)
		if err != nil {
			return nil, err
		}
		l := list[0]
		c := &l.Config
		c.TaskSet["data"] = path
		c.Steps, c.WarmUp, c.EvalEvery, c.SaveEvery, c.EvalSamples, c.FinalSamples = 2, 0, 1, 1, 1, 1
		c.Model.Context, c.FirstContext, c.FirstBatch, c.Batch = 256, 128, 2, 1
		c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden = 1, 16, 1, 16
		l.Methods = []method{softmax, nearFar2}
		return list, nil
	}
	row := needle
	row.pieces, row.outcome = tiny.pieces, tiny.outcome(needleFindings)
	out, err := row.Run(t.Context(), &Options{Out: t.TempDir(), Seeds: 2}, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	table := out.Tables[0]
	if len(table.Rows) != 2*2 || len(out.Figures) != 2+2 {
		t.Fatalf("table %+v, %d figures", table, len(out.Figures))
	}
	for i, cells := range table.Rows {
		if cells[0] != []string{"4096", "4096", "16384", "16384"}[i] || cells[3] == none || cells[5] != []string{"512", "512", "256", "256"}[i] {
			t.Errorf("row %v", cells)
		}
	}
	if text := strings.Join(out.Findings, "\n"); !strings.Contains(text, "near-far 2 0.0 % (at least 95 % required: not reached)") {
		t.Errorf("findings %s", text)
	}
}

func TestNeedlesAreCountedByDistance(t *testing.T) {
	var a needleAnswers
	for _, x := range [][3]int{{3000, 4, 4}, {600, 3, 4}, {1023, 4, 4}, {512, 4, 4}} {
		a.add(x[0], x[1], x[2])
	}
	want := []needleBucket{{512, 3, 2, 11, 12}, {2048, 1, 1, 4, 4}}
	if len(a.Buckets) != 2 || a.Buckets[0] != want[0] || a.Buckets[1] != want[1] {
		t.Errorf("buckets %+v, want %+v", a.Buckets, want)
	}
}
