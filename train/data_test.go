package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/checkpoint"
	"github.com/farfield-ml/farfield/internal/task"
)

// writeFile writes text to a file of the folder dir.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// labelledRows are n rows of texts, of the labels in turn.
func labelledRows(n int, labels ...string) string {
	var b strings.Builder
	b.WriteString("text,label\n")
	for i := range n {
		k := i % len(labels)
		fmt.Fprintf(&b, "%s%d,%s\n", strings.Repeat(labels[k][:1], 3), i%7, labels[k])
	}
	return b.String()
}

// smallRun trains a model of a task for a moment, and returns the folder of the run.
func smallRun(t *testing.T, name string, set map[string]string) string {
	t.Helper()
	c := samplePreset("copy", 5, 8)
	c.SetTask(name)
	c.TaskSet, c.Standardise = set, name == "series"
	c.Model.Layers, c.Model.Width, c.Model.Heads, c.Model.Hidden, c.Model.Mechanism = 1, 12, 2, 16, "softmax"
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := taskRun(t, c, src)
	return dir
}

// A run goes on with its own samples and names alone, and changes with no others.
func TestChangedDataIsNeitherResumedNorLengthened(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rows := labelledRows(60, "login", "storage")
	data := writeFile(t, folder, "data.csv", rows)
	dir := smallRun(t, "file", map[string]string{"data": data, "length": "6"})
	records := func() (list []string) {
		for _, name := range []string{configFile, classesFile} {
			text, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, string(text))
		}
		return list
	}
	before := records()
	for text, want := range map[string]string{
		strings.ReplaceAll(rows, ",login", ",account"): `task file: is not the data that the run began with: it has a class "account", and no class "login"`,
		labelledRows(40, "login", "storage"):           "task file: is not the data that the run began with: its SHA-256 is ",
	} {
		writeFile(t, folder, "data.csv", text)
		c, src := openRunTask(t, dir)
		_, resumed := Resume(src, dir)
		for _, err := range []error{resumed, LengthenRuns(src, c.Steps+1, dir)} {
			if !errors.Is(err, ErrDataChanged) || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error is %v, want %s", err, want)
			}
		}
	}
	if after := records(); !slices.Equal(after, before) {
		t.Errorf("the run has %q, had %q", after, before)
	}
}

// openRunTask returns the configuration of a run and its task.
func openRunTask(t *testing.T, dir string) (Config, task.Source) {
	t.Helper()
	c, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenTask()
	if err != nil {
		t.Fatal(err)
	}
	return c, src
}

// A run of an earlier version has a checksum of 64 samples of a split. It is resumed by that and gets
// the one of all; then each change is found.
func TestEveryChangeOfTheDataIsFound(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rows := labelledRows(2000, "login", "storage")
	data := writeFile(t, folder, "data.csv", rows)
	dir := smallRun(t, "file", map[string]string{"data": data, "length": "6"})
	c, src := openRunTask(t, dir)
	whole, err := task.Digest(src, nil)
	if err != nil {
		t.Fatal(err)
	}
	old, err := task.DigestLike("", src, whole)
	if err != nil || old == whole {
		t.Fatal(old, err)
	}
	if sum, err := DataSum(dir); err != nil || sum != whole {
		t.Errorf("the run has %s, %v; want %s", sum, err, whole)
	}
	latest, err := latestCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := checkpoint.Parse(latest)
	if err != nil {
		t.Fatal(err)
	}
	m.Data = old
	if err := os.Remove(filepath.Join(latest, manifestFile)); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteInto(latest); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, startFile, `{"version":1,"data_sha256":"`+old+`"}`)
	if err := CheckData(dir, src); err != nil {
		t.Error(err)
	}
	if err := LengthenRuns(src, c.Steps+1, dir); err != nil {
		t.Fatal(err)
	}
	_, src = openRunTask(t, dir)
	trainer, err := Resume(src, dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := trainer.Train(context.Background(), Observer{}); err != nil {
		t.Fatal(err)
	}
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	if sum, err := DataSum(dir); err != nil || sum != whole {
		t.Errorf("the resumed run has %s, %v; want %s", sum, err, whole)
	}
	lines := strings.SplitAfter(rows, "\n")
	for change := 1; change < 2000; change += 197 {
		changed := slices.Clone(lines)
		changed[change] = "x" + changed[change]
		writeFile(t, folder, "data.csv", strings.Join(changed, ""))
		_, src := openRunTask(t, dir)
		if err := CheckData(dir, src); !errors.Is(err, ErrDataChanged) {
			t.Errorf("row %d: eval: %v", change, err)
		}
		if _, err := Resume(src, dir); !errors.Is(err, ErrDataChanged) {
			t.Errorf("row %d: resuming: %v", change, err)
		}
	}
}

// TestDataOfARunMustBeUnchanged changes labels, rows and records of a run.
func TestDataOfARunMustBeUnchanged(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	rows := labelledRows(60, "login", "storage")
	data := writeFile(t, folder, "data.csv", rows)
	dir := smallRun(t, "file", map[string]string{"data": data, "length": "6"})
	latest, err := findCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	check := func(path, text string) error {
		writeFile(t, folder, "data.csv", text)
		_, src := openRunTask(t, dir)
		return CheckData(path, src)
	}
	const sums = "its SHA-256 is "
	changes := map[string][2]string{ // text, error
		"order":   {strings.ReplaceAll(rows, ",login", ",zlogin"), `it has a class "zlogin", and no class "login"`},
		"renamed": {strings.ReplaceAll(rows, ",login", ",account"), `it has a class "account", and no class "login"`},
		"third":   {strings.Replace(rows, ",login", ",aaa", 1), `it has 3 classes with "aaa", were 2`},
		"fewer":   {labelledRows(40, "login", "storage"), sums},
		"swapped": {strings.NewReplacer(",login", ",storage", ",storage", ",login").Replace(rows), sums},
	}
	for _, path := range []string{dir, latest} {
		if err := check(path, rows); err != nil {
			t.Error(err)
		}
		for name, c := range changes {
			err := check(path, c[0])
			if !errors.Is(err, ErrDataChanged) || !strings.HasPrefix(err.Error(), path+": "+data+": is not the data") || !strings.Contains(err.Error(), c[1]) {
				t.Errorf("%s: %v, want %s", name, err, c[1])
			}
		}
	}
	// Without names the number of classes and the digest tell, without both the number.
	if err := os.Remove(filepath.Join(dir, classesFile)); err != nil {
		t.Fatal(err)
	}
	if err := check(dir, changes["order"][0]); err == nil || !strings.Contains(err.Error(), sums) {
		t.Error(err)
	}
	m, err := checkpoint.Parse(latest)
	if err != nil {
		t.Fatal(err)
	}
	m.Data = ""
	if err := os.Remove(filepath.Join(latest, manifestFile)); err != nil {
		t.Fatal(err)
	}
	if err := m.WriteInto(latest); err != nil {
		t.Fatal(err)
	}
	if err := check(dir, changes["fewer"][0]); err != nil {
		t.Error(err)
	}
	if err := check(dir, changes["third"][0]); !errors.Is(err, ErrDataChanged) || !strings.Contains(err.Error(), "it has 3 classes, were 2") {
		t.Error(err)
	}
	writeFile(t, dir, classesFile, "login\n")
	if err := check(dir, rows); err == nil || !strings.Contains(err.Error(), "is no quoted name") {
		t.Error(err)
	}
}

// TestOtherDataHasTheClassesOfTheRun compares the confusion of other data with predictions
// for its texts. The data lacks the first class, so that its own numbers are others.
func TestOtherDataHasTheClassesOfTheRun(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	dir := smallRun(t, "file", map[string]string{"data": writeFile(t, folder, "data.csv", labelledRows(60, "a", "b", "c")), "length": "6"})
	c, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := openPredictor(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := labelledRows(30, "c", "b")
	other := writeFile(t, folder, "other.csv", rows)
	var want [3][3]int64
	for _, line := range strings.Split(strings.TrimSpace(rows), "\n")[1:] {
		text, label, _ := strings.Cut(line, ",")
		r, err := p.Predict(t.Context(), []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		want[slices.Index(p.Classes, label)][r.Class]++
	}
	m, _, err := loadModel(dir)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenOtherData(dir, other, true)
	if err != nil {
		t.Fatal(err)
	}
	score, detail, err := Evaluate(context.Background(), m, src, task.Test, 0)
	if err != nil || score.Samples != 30 {
		t.Fatalf("%+v, %v", score, err)
	}
	for class, row := range detail.Confusion {
		if !slices.Equal(row, want[class][:]) {
			t.Errorf("%v, predictions are %v", detail.Confusion, want)
		}
	}
	if names := src.(task.ClassNamer).ClassNames(); !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Error(names)
	}
	if all, err := task.Baselines(src, 0); err != nil || len(all) != 1 || all[0].Score != 0.5 || all[0].Learned != 0 || all[0].Judged != 30 {
		t.Errorf("baselines %+v, %v", all, err)
	}
	// Without all, a tenth is scored.
	if src, err = c.OpenOtherData(dir, other, false); err != nil {
		t.Fatal(err)
	}
	spec := src.Spec()
	if all, err := task.Baselines(src, 0); err != nil || len(all) < 2 || all[0].Learned != spec.Count[task.Train] || all[0].Judged != spec.Count[task.Test] {
		t.Errorf("baselines %+v, %v", all, err)
	}
	if n := spec.Count[task.Test]; n < 1 || n > 10 {
		t.Errorf("%+v", spec)
	}
	// One row of one class is scored too.
	writeFile(t, folder, "other.csv", labelledRows(1, "b"))
	if src, err = c.OpenOtherData(dir, other, true); err != nil {
		t.Fatal(err)
	}
	if _, detail, err = Evaluate(context.Background(), m, src, task.Test, 0); err != nil || len(detail.Confusion) != 3 || slices.Max(detail.Confusion[1]) != 1 {
		t.Errorf("%v, %v", detail.Confusion, err)
	}
	for text, want := range map[string]string{
		labelledRows(30, "b", "d"): `other.csv: label: "d" is none of the 3 classes that the model learned: ["a" "b" "c"]`,
		"text,kind\na,b\n":         `"label"`,
	} {
		writeFile(t, folder, "other.csv", text)
		if _, err := c.OpenOtherData(dir, other, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// Data sets and generated samples have no other data.
	c.Task = "copy"
	if _, err := c.OpenOtherData(dir, other, true); err == nil || !strings.Contains(err.Error(), "reads no data of yours") {
		t.Error(err)
	}
}

// TestOtherDataOfSeries has labels of rows by name, numbers in the scales of the run, and
// files that are longer than the run's.
func TestOtherDataOfSeries(t *testing.T) {
	t.Parallel()
	series := func(labels string, rows int) string {
		var b strings.Builder
		b.WriteString("x,y,label\n")
		for k := range rows {
			fmt.Fprintf(&b, "%d,%g,%c\n", 5000+k, 0.5*float64(k%3), labels[k%len(labels)])
		}
		return b.String()
	}
	folder := func(labels string, rows int) string {
		dir := t.TempDir()
		for i := range 30 {
			writeFile(t, dir, fmt.Sprintf("%02d.csv", i), series(labels, rows))
		}
		return dir
	}
	dir := smallRun(t, "series", map[string]string{"data": folder("pqr", 6), "ask": "each"})
	c, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	src, err := c.OpenOtherData(dir, folder("rq", 9), true)
	if err != nil {
		t.Fatal(err)
	}
	var s task.Sample
	if err := src.Sample(&s, task.Test, 29); err != nil || fmt.Sprint(s.Labels) != "[2 1 2 1 2 1]" || len(s.Values) != 12 || math.Abs(float64(s.Values[0])) > 10 {
		t.Errorf("labels %v, values %v, %v", s.Labels, s.Values, err)
	}
	if _, err := c.OpenOtherData(dir, folder("rs", 6), true); err == nil || !strings.Contains(err.Error(), `label: "s" is none of the 3 classes`) {
		t.Error(err)
	}

	list := func(at, step int) string {
		dir, b := t.TempDir(), "file,label\n"
		for i := range 30 {
			name := fmt.Sprintf("%02d.csv", i)
			writeFile(t, dir, name, strings.NewReplacer(",label", "", ",p", "").Replace(series("p", 6)))
			b += fmt.Sprintf("%s,%d\n", name, at+step*(i%3))
		}
		return writeFile(t, dir, "list.csv", b)
	}
	dir = smallRun(t, "series", map[string]string{"data": list(700, 50), "ask": "number"})
	if c, err = RunConfig(dir); err != nil {
		t.Fatal(err)
	}
	scales, err := readScales(dir)
	if err != nil {
		t.Fatal(err)
	}
	other := list(100, 3)
	if src, err = c.OpenOtherData(dir, other, true); err != nil {
		t.Fatal(err)
	}
	seen := map[float64]int{}
	for i := range 30 {
		if err := src.Sample(&s, task.Test, i); err != nil {
			t.Fatal(err)
		}
		// A float32 near -18 has an ulp of 2^-19, in deviations of about 40.
		seen[math.Round(1e3*(float64(s.Targets[0])*scales.Deviation[0]+scales.Mean[0]))/1e3]++
	}
	if fmt.Sprint(seen) != "map[100:10 103:10 106:10]" {
		t.Error(seen)
	}
	// The mean misses by 0 or 3.
	mean := 6 / (scales.Deviation[0] * scales.Deviation[0])
	if all, err := task.Baselines(src, 0); err != nil || len(all) != 1 || math.Abs(all[0].Score-mean) > 1e-5*mean {
		t.Errorf("baselines %+v, %v, the mean scores %g", all, err, mean)
	}
	// The baselines of a tenth are in these scales too: 3 of 30 targets differ by 0, 3 or 6.
	if src, err = c.OpenOtherData(dir, other, false); err != nil {
		t.Fatal(err)
	}
	if all, err := task.Baselines(src, 0); err != nil || len(all) != 2 || all[0].Score > 36/(scales.Deviation[0]*scales.Deviation[0]) {
		t.Errorf("baselines %+v, %v", all, err)
	}
	if err := os.Remove(filepath.Join(dir, scalesFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.OpenOtherData(dir, other, true); err == nil || !strings.Contains(err.Error(), "scales: ") {
		t.Error(err)
	}
	for i := range 30 {
		writeFile(t, filepath.Dir(other), fmt.Sprintf("%02d.csv", i), "1,2,3\n4,5,6\n")
	}
	if _, err := c.OpenOtherData(dir, other, true); err == nil || !strings.Contains(err.Error(), "have 0 tokens or 3 numbers, of the run 0 or 2") {
		t.Error(err)
	}
}

// A Config that a program makes may have no settings.
func TestOtherDataNeedsNoSettings(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing.csv")
	c := Config{Task: "file"}
	c.Model.Context = 16
	if _, err := c.OpenOtherData(t.TempDir(), missing, true); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v", err)
	}
}

// A run does not begin where draws of single files leave a class without one to learn from.
func TestRunsNeedFilesOfEachClass(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 21 {
		path := filepath.Join(dir, "ab"[i/20:][:1], fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("some text"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c := samplePreset("file", 4, 6, "data", dir)
	c.Stratified = false
	refused := 0
	for ; c.DataSeed < 40; c.DataSeed++ {
		src, err := c.OpenTask()
		if err != nil {
			t.Fatal(err)
		}
		if task.CheckTrainingClasses(src) != nil {
			if _, err := New(c, src, ""); err == nil || !strings.Contains(err.Error(), `class "b": `) {
				t.Fatalf("seed %d: error is %v", c.DataSeed, err)
			}
			refused++
		}
	}
	if refused == 0 {
		t.Error("all seeds draw a file of each class")
	}
}
