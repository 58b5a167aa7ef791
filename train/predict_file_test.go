package train

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// ownSeries are files of two columns of sizes that differ a thousandfold, in a folder for
// each of two classes, with a list of them.
func ownSeries(t *testing.T) (dir string, files []string) {
	t.Helper()
	dir = t.TempDir()
	list := "file,label\n"
	for i := range 60 {
		class := []string{"one", "two"}[i%2]
		var b strings.Builder
		b.WriteString("x,label,y\n")
		for k := range 6 + i%5 {
			fmt.Fprintf(&b, "%d,%s,%g\n", 5000+900*(i%2)+37*k*i%100, []string{"p", "q", "r"}[k%3], 0.001*float64(k%3))
		}
		name := filepath.Join(class, fmt.Sprintf("%02d.csv", i))
		if err := os.MkdirAll(filepath.Join(dir, class), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		// As a user has it, without what is to be said.
		plain := strings.NewReplacer(",label", "", ",p,", ",", ",q,", ",", ",r,", ",").Replace(b.String())
		files = append(files, filepath.Join(dir, fmt.Sprintf("plain-%02d.csv", i)))
		if err := os.WriteFile(files[i], []byte(plain), 0o666); err != nil {
			t.Fatal(err)
		}
		list += fmt.Sprintf("%s,%d\n", filepath.Base(files[i]), 700+50*(i%2))
	}
	if err := os.WriteFile(filepath.Join(dir, "list.csv"), []byte(list), 0o666); err != nil {
		t.Fatal(err)
	}
	return dir, files
}

// TestPredictFileSaysWhatTheModelSaysOfItsTask compares what is said of each file with the
// model's outputs for the sample that the task makes of it, which is standardised, cut and
// padded as in training.
func TestPredictFileSaysWhatTheModelSaysOfItsTask(t *testing.T) {
	t.Parallel()
	dir, files := ownSeries(t)
	for _, ask := range []string{"class", "number", "each"} {
		for _, quirk := range []bool{false, true} {
			c := samplePreset("series", 5, 8, "ask", ask, "length", "8", "data", filepath.Join(dir, "list.csv"))
			if ask == "each" {
				c.TaskSet["data"] = dir
				if err := os.Rename(filepath.Join(dir, "list.csv"), filepath.Join(dir, "list")); err != nil {
					t.Fatal(err)
				}
				for i, f := range files {
					files[i] = filepath.Join(t.TempDir(), filepath.Base(f))
					if err := os.Rename(f, files[i]); err != nil {
						t.Fatal(err)
					}
				}
			}
			c.Model.Positions, c.LRAQuirk = "", quirk
			c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden, c.Model.Mechanism = 1, 12, 2, 16, "softmax"
			src, err := c.OpenTask()
			if err != nil {
				t.Fatal(err)
			}
			run, _ := taskRun(t, c, src)
			p, err := openPredictor(run)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := RunConfig(run)
			if err != nil {
				t.Fatal(err)
			}
			_, seen, err := kept.PrepareTask(src)
			if err != nil {
				t.Fatal(err)
			}
			m, _, err := loadModel(run)
			if err != nil {
				t.Fatal(err)
			}
			said := map[string]bool{}
			for i, f := range files {
				if err := p.PredictFile(t.Context(), f, func(name string, r Prediction) error {
					if isCut := ask != "each" && 6+i%5 > 8; r.IsTruncated != isCut {
						t.Errorf("%s, file %d: truncated is %t, needs %t", ask, i, r.IsTruncated, isCut)
					}
					if name != "" {
						t.Errorf("%s: its name is %q", f, name)
					}
					said[fmt.Sprint(r.Class, r.Numbers, r.Labels)] = true
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			for split, n := range src.Spec().Count {
				for i := range n {
					var s, bare task.Sample
					if err := seen.Sample(&s, task.Split(split), i); err != nil {
						t.Fatal(err)
					}
					if err := src.Sample(&bare, task.Split(split), i); err != nil {
						t.Fatal(err)
					}
					b := PackBatch(seen.Spec(), s)
					outputs := max(src.Spec().Classes, src.Spec().Outputs)
					logits := make([]float32, m.Config().Rows(b.B, b.N)*outputs)
					if err := m.Logits(t.Context(), b, logits); err != nil {
						t.Fatal(err)
					}
					want := fmt.Sprint(largestIndex(logits), []float64(nil), []int(nil))
					switch ask {
					case "number":
						scales := src.(task.ScaledSource).Scales()
						want = fmt.Sprint(0, []float64{float64(logits[0])*scales.Deviation[0] + scales.Mean[0]}, []int(nil))
					case "each":
						var labels []int
						for k := range len(bare.Labels) {
							labels = append(labels, largestIndex(logits[k*outputs:][:outputs]))
						}
						want = fmt.Sprint(0, []float64(nil), labels)
					}
					if !said[want] {
						t.Fatalf("%s, padded %t: %s of sample %d is said of no file: %v", ask, quirk, want, i, said)
					}
				}
			}
			if ask == "each" {
				return // its files were moved
			}
		}
	}
}

// A set of points has no order: neither has what is said of it, and positions or a decoder,
// which would give it one, are refused.
func TestPointsHaveNoOrder(t *testing.T) {
	t.Parallel()
	dir, _ := ownSeries(t)
	c := samplePreset("series", 5, 8, "points", "true", "data", filepath.Join(dir, "list.csv"))
	c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden = 2, 12, 2, 16
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range []func(c *Config){
		func(c *Config) { c.Model.Positions = model.Learned },
		func(c *Config) { c.Model.Positions = model.Rotary },
		func(c *Config) { c.Model.Positions, c.Model.Kind = "", model.Decoder },
		func(c *Config) { c.Model.Positions, c.Model.Kind = "", model.Convolutional },
	} {
		c := c
		change(&c)
		if _, _, err := c.PrepareTask(src); err == nil || !strings.Contains(err.Error(), "the points of task series have n") || !strings.Contains(err.Error(), "; set ") {
			t.Errorf("error is %v", err)
		}
	}
	c.Model.Positions = ""
	run, _ := taskRun(t, c, src)
	p, err := openPredictor(run)
	if err != nil {
		t.Fatal(err)
	}
	rows := []string{"5100,0.001", "5900,0", "6000,0.002", "5010,0.0015", "5500,0.001"}
	var first []float64
	for turn := range 5 {
		path := filepath.Join(t.TempDir(), "p.csv")
		if err := os.WriteFile(path, []byte(strings.Join(append(slices.Clone(rows[turn:]), rows[:turn]...), "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := p.PredictFile(t.Context(), path, func(_ string, r Prediction) error {
			if first == nil {
				first = slices.Clone(r.Probabilities)
			}
			for i, x := range r.Probabilities {
				if math.Abs(x-first[i]) > 1e-5 {
					t.Errorf("turned by %d: %v, before %v", turn, r.Probabilities, first)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// The run keeps the names of columns. A run from before has none and takes any names.
func TestPredictFileRefusesOtherColumns(t *testing.T) {
	t.Parallel()
	dir, _ := ownSeries(t)
	c := samplePreset("series", 5, 8, "data", filepath.Join(dir, "list.csv"))
	c.Model.Positions = ""
	c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden = 1, 12, 2, 16
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	run, _ := taskRun(t, c, src)
	other := filepath.Join(dir, "other.csv")
	if err := os.WriteFile(other, []byte("y,x\n0.001,5000\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`other.csv: columns: they are ["y" "x"], the model learned from ["x" "y"]`, ""} {
		p, err := openPredictor(run)
		if err != nil {
			t.Fatal(err)
		}
		err = p.PredictFile(t.Context(), other, func(string, Prediction) error { return nil })
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("error is %v, want %q", err, want)
		}
		withoutCopies(t, run)
		if err := os.Remove(filepath.Join(run, columnsFile)); want != "" && err != nil {
			t.Fatal(err)
		}
	}
}

func TestScalesOfARunAreChecked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if s, err := readScales(dir); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	if err := writeScales(dir, &task.Scales{Mean: []float64{1}, Deviation: []float64{2}}); err != nil {
		t.Fatal(err)
	}
	if s, err := readScales(dir); err != nil || s.Mean[0] != 1 || s.Deviation[0] != 2 {
		t.Errorf("%v, %v", s, err)
	}
	for content, want := range map[string]string{
		"":                                   "unexpected end",
		"{}":                                 "it has 0 means and 0 deviations",
		`{"mean":[1],"deviation":[1,2]}`:     "it has 1 means and 2 deviations",
		`{"mean":[1],"deviation":[0]}`:       "number 0 has mean 1 and deviation 0",
		strings.Repeat(" ", maxScaleBytes+1): "is longer than",
	} {
		if err := os.WriteFile(filepath.Join(dir, scalesFile), []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := readScales(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error is %v, want %s", content, err, want)
		}
	}
}

// A forecast goes on from the last value of the file, and other tables are scored by the scales of
// the run.
func TestForecastsGoOnFromTheLastValue(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	table := func(first float64) string {
		var b strings.Builder
		b.WriteString("date,a,b\n")
		for r := range 120 {
			fmt.Fprintf(&b, "day %d,%d,%g\n", r, r%5, first+float64(r%7))
		}
		return b.String()
	}
	data, other := writeFile(t, folder, "a.csv", table(50)), writeFile(t, folder, "b.csv", table(1050))
	dir := smallRun(t, "forecast", map[string]string{"data": data, "target": "b", "window": "8", "horizon": "3"})
	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	for path, last := range map[string]float64{data: 50 + 119%7, other: 1050 + 119%7} {
		err := p.PredictFile(t.Context(), path, func(_ string, r Prediction) error {
			if len(r.Numbers) != 3 || r.Columns != 1 {
				t.Errorf("%d numbers in %d columns", len(r.Numbers), r.Columns)
			}
			for _, x := range r.Numbers {
				if math.Abs(x-last) > 100 {
					t.Errorf("%s: forecast %g from %g", path, x, last)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenOtherData(dir, other, true)
	if err != nil {
		t.Fatal(err)
	}
	if spec := src.Spec(); spec.Count[task.Test] != 96-8-3+1+2*(12-3+1) {
		t.Errorf("%+v", spec)
	}
	if list, err := task.Baselines(src, 100); err != nil || len(list) == 0 {
		t.Errorf("baselines %v, %v", list, err)
	}
}
