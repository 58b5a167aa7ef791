package reproduce

import (
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// Each training of an hour's ListOps has a model, and no setting of fastmax is left open.
func TestArenaTrainingsAreConfigured(t *testing.T) {
	all, err := arenaHour()
	if err != nil {
		t.Fatal(err)
	}
	l := all[2]
	for i := range l.Methods {
		m := &l.Methods[i]
		c := l.configFor(m, 1, 1)
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		ready, _, err := c.PrepareTask(src)
		if err != nil {
			t.Fatalf("%s: %v", m.Label, err)
		}
		for name, value := range ready.Model.Set {
			if m.Name == "fastmax" && m.Set[name] != value {
				t.Errorf("%s leaves setting %s=%s to the defaults of training", m.Label, name, value)
			}
		}
	}
	o := &Options{Budget: Hour}
	list, err := fig5Pieces(o)
	if err != nil {
		t.Fatal(err)
	}
	equal := 0
	for _, p := range list {
		if _, is := p.Config.(equalConfig); is {
			equal++
		}
	}
	if equal != 4+4+2 {
		t.Errorf("%d trainings of equal seconds", equal)
	}
}

// A mechanism twice as fast as softmax is judged at its updates and at its seconds.
func TestArenaComparesUpdatesAndSeconds(t *testing.T) {
	run := func(steps int, end float64, looks ...float64) learned {
		r := learned{Score: train.Score{Metric: task.Accuracy, Value: end, Samples: 10000}, Steps: []train.Step{{Step: steps}}}
		for i, v := range looks {
			r.Evals = append(r.Evals, train.Eval{Eval: train.EvalLook, Step: (i + 1) * steps / len(looks), Score: train.Score{Value: v, Samples: 500}})
		}
		return r
	}
	s := &scored{lesson: &lesson{Name: "x", Length: 64, Config: train.Config{Batch: 8}}, Baselines: []task.Baseline{{Name: "a", Score: 0.2}, {Name: "b", Score: 0.3}}}
	s.Results = []result{
		{method: &softmax, Runs: []learned{run(100, 0.5, 0.4, 0.5)}, Value: 0.5},
		{method: &farThird2, Runs: []learned{run(200, 0.7, 0.3, 0.45, 0.6, 0.7)}, Value: 0.7},
	}
	out, table := new(Outcome), arenaTable()
	speeds := []updateSpeed{{Curve: softmax.Label, Shape: shape{4, 64}, Ms: 5}, {Curve: farThird2.Label, Shape: shape{4, 64}, Ms: 2.5}}
	out.compareArena(&table, s, speeds)
	want := [][]string{
		{"x", "softmax", "50.00", "100", none, none, "30.00"},
		{"x", farThird2.Label, "70.00", "200", "-5.00 ± 3.15", "+20.00 ± 0.68", "30.00"},
	}
	for i := range want {
		if strings.Join(table.Rows[i], "|") != strings.Join(want[i], "|") {
			t.Errorf("row %q, want %q", table.Rows[i], want[i])
		}
	}
	text := strings.Join(out.Findings, "\n")
	if !strings.Contains(text, "at equal updates: near-far 2, each third layer minus softmax -5.00 ± 3.15 points, at least -1 less a standard error required: not reached") ||
		!strings.Contains(text, "at equal seconds: near-far 2, each third layer minus softmax +20.00 ± 0.68 points, above 0 required: reached") {
		t.Errorf("findings %s", text)
	}
	if f := out.Figures[0]; len(f.Series) != 2 || f.Series[0].X[1] != 1 || f.Series[1].X[3] != 1 {
		t.Errorf("figure %+v", f)
	}
}

// More updates than softmax's seconds hold can show that a mechanism is behind, not that it is ahead.
func TestArenaJudgesLongTrainings(t *testing.T) {
	for value, want := range map[float64]string{0.4: "not reached, within noise: it made 100 % more", 0.6: "not measured: it made 100 % more"} {
		s := &scored{lesson: &lesson{Name: "x", Length: 64, EqualSeconds: true, Config: train.Config{Batch: 8, FirstContext: 64}}}
		s.Results = []result{
			{method: &softmax, Runs: []learned{{Score: train.Score{Value: 0.5, Samples: 10000}, Steps: []train.Step{{Step: 100}}}}, Value: 0.5},
			{method: &farThird2, Runs: []learned{{Score: train.Score{Value: value, Samples: 10000}, Steps: []train.Step{{Step: 200}}}}, Value: value},
		}
		out, table := new(Outcome), arenaTable()
		out.compareArena(&table, s, []updateSpeed{{Curve: softmax.Label, Shape: shape{4, 64}, Ms: 5}, {Curve: farThird2.Label, Shape: shape{4, 64}, Ms: 5}})
		if len(out.Findings) != 1 || !strings.Contains(out.Findings[0], want) || !strings.HasSuffix(table.Rows[1][5], "with 100 % more updates") {
			t.Errorf("%v: %q, %q", value, out.Findings, table.Rows)
		}
	}
}

// Updates are timed with samples of the lengths that training draws.
func TestTypicalBatchHasTheLengthsOfTheTask(t *testing.T) {
	c, err := expressions("listops", 100)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.Config.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	b, err := typicalBatch(src, shape{16, 2000})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, n := range b.Lens {
		sum += n
	}
	if mean := sum / 16; len(b.Lens) != 16 || mean < 900 || mean > 1200 || b.N < 1500 || b.N > 2000 {
		t.Errorf("lengths %v of %d", b.Lens, b.N)
	}
}

// Growing samples take the seconds of each length.
func TestPaceCountsEachLength(t *testing.T) {
	l := &lesson{Length: 64, Config: train.Config{Batch: 1, FirstContext: 16, FirstBatch: 4}}
	speeds := []updateSpeed{
		{Curve: "a", Shape: shape{4, 16}, Ms: 8000}, {Curve: "a", Shape: shape{2, 32}, Ms: 10000}, {Curve: "a", Shape: shape{1, 64}, Ms: 20000},
		{Curve: "b", Shape: shape{1, 64}, Ms: 1000},
	}
	for _, x := range []struct {
		first, steps int
		want         float64
	}{{0, 12, 0}, {4, 12, 32}, {8, 12, 72}, {12, 12, 152}, {12, 24, 8*8 + 4*10}} {
		got, ok := l.pace(speeds, "a")(x.first, x.steps)
		if got != x.want || !ok {
			t.Errorf("%d of %d updates take %g s, %t; want %g", x.first, x.steps, got, ok, x.want)
		}
	}
	if s, ok := l.pace(speeds, "b")(12, 12); ok {
		t.Errorf("lengths that are not timed take %g s", s)
	}
}
