package task

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sharedData returns the folder of the real data sets: FARFIELD_DATA, or the folder beside a
// checkout. A folder without the sheets of CIFAR-10 has other sets, of other sizes.
func sharedData(t testing.TB) string {
	t.Helper()
	root := os.Getenv("FARFIELD_DATA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(root, "cifar10", "cifar10_batch_50.png")); err != nil {
		t.Skip("neither beside this checkout nor in FARFIELD_DATA are the data sets of this test")
	}
	return root
}

func openSource(t testing.TB, name string, o Options, set ...string) Source {
	t.Helper()
	o.Settings = map[string]string{}
	for i := 0; i < len(set); i += 2 {
		o.Settings[set[i]] = set[i+1]
	}
	s, err := Open(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func take(t testing.TB, src Source, split Split, i int) Sample {
	t.Helper()
	var s Sample
	if err := src.Sample(&s, split, i); err != nil {
		t.Fatal(err)
	}
	return s
}

// fits checks a sample against the specification.
func fits(t *testing.T, spec *Spec, s *Sample) {
	t.Helper()
	n := len(s.Tokens)
	if spec.Vocab == 0 {
		n = len(s.Values) / max(spec.Channels, 1)
		if len(s.Values) != n*spec.Channels || len(s.Tokens) > 0 {
			t.Errorf("%s: %d values of %d channels, %d tokens", spec.Name, len(s.Values), spec.Channels, len(s.Tokens))
		}
	} else if len(s.Values) > 0 {
		t.Errorf("%s: %d values beside tokens", spec.Name, len(s.Values))
	}
	if n < 1 || n > spec.Length {
		t.Errorf("%s: %d positions, at most %d are specified", spec.Name, n, spec.Length)
	}
	for _, x := range s.Tokens {
		if x < 0 || int(x) >= spec.Vocab {
			t.Errorf("%s: token %d of a vocabulary of %d", spec.Name, x, spec.Vocab)
			break
		}
	}
	if (spec.Parts == 2) != (s.Cut > 0) || s.Cut >= n {
		t.Errorf("%s: %d parts, cut at %d of %d", spec.Name, spec.Parts, s.Cut, n)
	}
	if spec.Kind == Class && (s.Class < 0 || int(s.Class) >= spec.Classes) {
		t.Errorf("%s: class %d of %d", spec.Name, s.Class, spec.Classes)
	}
	labels, targets := 0, 0
	switch spec.Kind {
	case Labels, Next:
		labels = n
	case Regression:
		targets = spec.Outputs
	case Trace, Level:
		targets = n * spec.Outputs
	}
	if len(s.Labels) != labels || len(s.Targets) != targets {
		t.Errorf("%s: %d labels and %d targets for %d positions", spec.Name, len(s.Labels), len(s.Targets), n)
	}
	for _, y := range s.Labels {
		if y < -1 || int(y) >= spec.Classes {
			t.Errorf("%s: label %d of %d", spec.Name, y, spec.Classes)
			break
		}
	}
}

// holds checks the contract of Source: samples fit the specification, differ, and do not depend
// on earlier or concurrent calls; unknown indices are refused; baselines are finite.
func holds(t *testing.T, src Source) {
	t.Helper()
	spec := src.Spec()
	var reused Sample
	for split := Train; split <= Test; split++ {
		n := sampleCount(&spec, split, 5)
		first := make([]Sample, n)
		for i := range n {
			first[i] = take(t, src, split, i)
			fits(t, &spec, &first[i])
		}
		var group sync.WaitGroup
		for i := range n {
			group.Go(func() {
				var again Sample
				if err := src.Sample(&again, split, i); err != nil || !reflect.DeepEqual(again, first[i]) {
					t.Errorf("%s: sample %d of %v changes: %v", spec.Name, i, split, err)
				}
			})
		}
		group.Wait()
		for i := n - 1; i >= 0; i-- {
			if err := src.Sample(&reused, split, i); err != nil || !equal(&reused, &first[i]) {
				t.Errorf("%s: sample %d of %v changes in memory that is used again: %v", spec.Name, i, split, err)
			}
		}
		if n > 1 && reflect.DeepEqual(first[0], first[1]) {
			t.Errorf("%s: samples 0 and 1 of %v are the same", spec.Name, split)
		}
		if err := src.Sample(&reused, split, -1); err == nil {
			t.Errorf("%s: sample -1 of %v", spec.Name, split)
		}
		if c := spec.Count[split]; c != Endless {
			if err := src.Sample(&reused, split, c); err == nil || !strings.Contains(err.Error(), spec.Name) {
				t.Errorf("%s: sample %d of %d: %v", spec.Name, c, c, err)
			}
		}
	}
	if err := src.Sample(&reused, 3, 0); err == nil {
		t.Errorf("%s: split 3", spec.Name)
	}
	list, err := Baselines(src, 20)
	if err != nil || len(list) == 0 {
		t.Errorf("%s: baselines %v, %v", spec.Name, list, err)
	}
	for _, b := range list {
		if b.Name == "" || math.IsNaN(b.Score) || math.IsInf(b.Score, 0) || spec.Metric == Accuracy && (b.Score < 0 || b.Score > 1) {
			t.Errorf("%s: baseline %v", spec.Name, b)
		}
	}
}

func equal(a, b *Sample) bool {
	return slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Values, b.Values) && slices.Equal(a.Labels, b.Labels) &&
		slices.Equal(a.Targets, b.Targets) && a.Class == b.Class && a.Cut == b.Cut
}

func TestSourcesKeepTheirPromise(t *testing.T) {
	for _, c := range [][]string{
		{"shapes"}, {"shapes", "group", "place"},
		{"listops"}, {"listops", "above", "20", "below", "60"},
		{"listops6"}, {"listops6", "min", "8", "max", "8"},
		{"copy"}, {"copy", "length", "1", "symbols", "1000"},
		{"induction"}, {"induction", "length", "256", "symbols", "16"},
		{"mqar"}, {"mqar", "vocab", "256", "length", "128", "pairs", "32", "random", "false"},
		{"needle"}, {"needle", "length", "1024", "lines", "3", "distance", "700"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			src := openSource(t, c[0], Options{Seed: 1}, c[1:]...)
			if got := src.Spec().Name; got != c[0] {
				t.Errorf("its name is %q", got)
			}
			holds(t, src)
			other := openSource(t, c[0], Options{Seed: 2}, c[1:]...)
			a, b := take(t, src, Train, 3), take(t, other, Train, 3)
			if c[0] != "copy" && reflect.DeepEqual(a, b) {
				t.Error("seeds 1 and 2 give the same")
			}
			if a, b = take(t, src, Train, 0), take(t, src, Test, 0); reflect.DeepEqual(a, b) {
				t.Error("training and test samples are the same")
			}
		})
	}
}

func TestOpenRefusesUnknownAndInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{`task "listop": unknown; there are: shapes, listops,`, []string{"listop"}},
		{`task listops: setting "length": unknown; there are: from, above, below`, []string{"listops", "length", "9"}},
		{`setting above: "x" is no whole number`, []string{"listops", "above", "x"}},
		{"above: it is 70, 3 to 58 are possible", []string{"listops", "above", "70", "below", "60"}},
		{`setting from: "disk" is none of generate, files`, []string{"listops", "from", "disk"}},
		{"it holds no basic_train.tsv, no basic_train.tsv.gz", []string{"listops", "from", "files"}},
		{"min: it is 9, 8 to 8 are possible", []string{"listops6", "min", "9", "max", "8"}},
		{"length: 12 tokens for 8 pairs", []string{"mqar", "length", "12"}},
		{"vocab: it is 100, more than the length, 128", []string{"mqar", "vocab", "100"}},
		{`setting random: "no" is neither`, []string{"mqar", "random", "no"}},
		{"length: it is 2, 3 to", []string{"induction", "length", "2"}},
		{"distance: it is 4090, 0 to 4048 are possible", []string{"needle", "distance", "4090"}},
		{"lines: it is 0, 1 to", []string{"needle", "lines", "0"}},
		{"symbols: it is 0", []string{"copy", "symbols", "0"}},
		{`setting group: "colour"`, []string{"shapes", "group", "colour"}},
	} {
		o := Options{Folder: t.TempDir(), Settings: map[string]string{}}
		for i := 1; i < len(c.args); i += 2 {
			o.Settings[c.args[i]] = c.args[i+1]
		}
		if _, err := Open(c.args[0], o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error is %v", c.args, err)
		}
	}
}

func TestThresholdSeparatesBest(t *testing.T) {
	for _, c := range []struct {
		x     []float64
		y     []int32
		at    float64
		above bool
	}{
		{[]float64{3, 1, 2}, []int32{1, 0, 0}, 2, true},
		{[]float64{3, 1, 2}, []int32{0, 1, 1}, 2, false},
		{[]float64{1, 1, 1}, []int32{1, 1, 0}, math.Inf(-1), true},
		{[]float64{1, 1, 1}, []int32{0, 1, 0}, math.Inf(-1), false},
	} {
		if at, above := findThreshold(c.x, c.y); at != c.at || above != c.above {
			t.Errorf("%v %v: %g, %t", c.x, c.y, at, above)
		}
	}
}
