package task

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestLabelsFollowOneRule gives labels that are names, names in another case, or numbers, and
// labels that only a rule for each label could read.
func TestLabelsFollowOneRule(t *testing.T) {
	stars, moods := []string{"1", "2", "3", "4", "5"}, []string{"bad", "good", "fair"}
	for _, c := range []struct {
		labels, names []string
		want          []int32
		err           string
	}{
		{labels: []string{"1", "2", "5"}, names: stars, want: []int32{0, 1, 4}},
		{labels: []string{"1", "2", "0"}, names: stars, want: []int32{1, 2, 0}},
		{labels: []string{"0", "1", "2", "3", "4"}, names: stars, want: []int32{0, 1, 2, 3, 4}},
		{labels: []string{"Good", "bad"}, names: moods, want: []int32{1, 0}},
		{labels: []string{"2", "0"}, names: moods, want: []int32{2, 0}},
		{labels: []string{"a", "A"}, names: []string{"A", "a"}, want: []int32{1, 0}},
		{labels: []string{"bad", "2"}, names: moods,
			err: `label: "2" is no class of the model, ["bad" "good" "fair"], and "bad" no number below 3; all labels are names, or all are numbers`},
		{labels: []string{"0", "5"}, names: stars,
			err: `label: "0" is no class of the model, ["1" "2" "3" "4" "5"], and "5" no number below 5; all labels are names, or all are numbers`},
		{labels: []string{"bad", "worse"}, names: moods,
			err: `label: "worse" is no class of the model, ["bad" "good" "fair"], nor a number below 3`},
		{labels: []string{"GOOD", "bad", "good"}, names: moods, err: `label: "GOOD" and "good" are both class 1 of the model, "good"`},
		{labels: []string{"0", "+1", "01"}, names: moods, err: `label: "+1" and "01" are both class 1 of the model, "good"`},
	} {
		got, err := matchClasses(c.labels, c.names)
		message := ""
		if err != nil {
			message = err.Error()
		}
		if message != c.err || !slices.Equal(got, c.want) {
			t.Errorf("%q of %q: %v, %v; want %v, %s", c.labels, c.names, got, err, c.want, c.err)
		}
	}
}

// Data that a model is scored on may be one sample of one class, whatever split the seed draws.
func TestScoredDataNeedsOneSample(t *testing.T) {
	dir := folderOf(t, map[string][]byte{
		"x.csv": []byte("text,label\na,pos\n"), "number.csv": []byte("file,label\n1.csv,1050\n"), "list.csv": []byte("file,label\n1.csv,pos\n"),
		"1.csv": []byte("1\n2\n"), "texts/pos/1.txt": []byte("a"), "texts/none/.x": nil, "series/pos/1.csv": []byte("1\n"), "tables/1.csv": []byte("x,label\n1,pos\n"),
		"fa/pos/1.fa": []byte(">x\nACGT\n"), "wav/pos/1.wav": nil, "picture/pos/1.png": nil,
	})
	for _, set := range [][]string{
		{"file", "x.csv"}, {"file", "texts"}, {"series", "series"}, {"series", "list.csv"}, {"series", "number.csv", "ask", "number"},
		{"series", "tables", "ask", "each"}, {"fasta", "fa"}, {"wav", "wav"}, {"picture", "picture"},
	} {
		counts := [3]int{}
		for seed := range uint64(40) {
			o := Options{Seed: seed, ScoreOnly: true, DrawnSplits: true}
			src := openSource(t, set[0], o, append([]string{"data", filepath.Join(dir, set[1])}, set[2:]...)...)
			for split, n := range src.Spec().Count {
				counts[split] += n
			}
			scales := &Scales{[]float64{1000}, []float64{100}}
			learned, err := NumberAsLearned(src, []string{"neg", "none", "pos"}, scales, true)
			if err != nil || learned.Spec().Count != [3]int{Test: 1} {
				t.Fatalf("%q: %v", set, err)
			}
			if set[0] == "wav" || set[0] == "picture" { // of empty files
				continue
			}
			if s := take(t, learned, Test, 0); s.Class != 2 && !slices.Equal(s.Labels, []int32{2}) && fmt.Sprint(s.Targets) != "[0.5]" {
				t.Errorf("%q: %+v", set, s)
			}
			if all, err := Baselines(learned, 0); err != nil || len(all) != 0 {
				t.Errorf("%q: baselines of one target %+v, %v", set, all, err)
			}
		}
		if slices.Contains(counts[:], 0) {
			t.Errorf("%q: the splits are %v", set, counts)
		}
		if _, err := Open(set[0], Options{Settings: pairs(append([]string{"data", filepath.Join(dir, set[1])}, set[2:]...)), Seed: 1}); err == nil && set[1] != "number.csv" {
			t.Errorf("%q: a training may begin", set)
		}
	}
}

// Baselines of a run's training data are scored on all of the other data, with the run's classes.
func TestBaselinesLearnFromTheRun(t *testing.T) {
	rows := func(n int, labels ...string) []byte {
		var b strings.Builder
		b.WriteString("text\tlabel\n")
		for i := range n {
			class := i % len(labels)
			fmt.Fprintf(&b, "%s thing %d\t%s\n", map[string]string{"bad": "awful", "good": "great", "fair": "middling"}[labels[class]], i%5, labels[class])
		}
		return []byte(b.String())
	}
	dir := folderOf(t, map[string][]byte{"run.tsv": rows(120, "bad", "fair", "good"), "other.tsv": rows(40, "good", "fair")})
	names := []string{"bad", "fair", "good"}
	run := openSource(t, "file", Options{Seed: 1}, "data", filepath.Join(dir, "run.tsv"))
	other := openSource(t, "file", Options{Seed: 1, ScoreOnly: true}, "data", filepath.Join(dir, "other.tsv"))
	judged, err := NumberAsLearned(other, names, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	list, ok, err := BaselinesFrom(run, judged)
	if err != nil || !ok || len(list) != 3 {
		t.Fatalf("%+v, %t, %v", list, ok, err)
	}
	count := run.Spec().Count
	for i, want := range []Baseline{{Score: 0, Learned: count[Train]}, {Score: 1, Learned: count[Train]}, {Score: 1, Learned: count[Train] + count[Valid]}} {
		if b := list[i]; b.Score != want.Score && i > 0 || b.Learned != want.Learned || b.Judged != 40 {
			t.Errorf("%+v, want %+v", b, want)
		}
	}
	sounds, err := NumberAsLearned(openSource(t, "wav", Options{ScoreOnly: true}, "data", folderOf(t, map[string][]byte{"pos/1.wav": nil})), []string{"pos"}, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := BaselinesFrom(run, sounds); ok || err != nil {
		t.Errorf("of sounds: %t, %v", ok, err)
	}
}
