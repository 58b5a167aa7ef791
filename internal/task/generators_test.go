package task

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/rng"
)

func TestExpressionIsParsedEvaluatedAndWritten(t *testing.T) {
	const flat = "[SM 3 [MED 9 4 ] [MAX 1 2 [MIN 7 8 ] ] [MED 1 2 6 9 ] ]"
	tokens, err := ParseExpression(nil, flat)
	if err != nil {
		t.Fatal(err)
	}
	if got := evaluateExpression(tokens, false); got != (3+6+7+4)%10 {
		t.Errorf("value %d", got)
	}
	if got := evaluateExpression(tokens, true); got != (3+9+7+6)%10 {
		t.Errorf("value with the upper median %d", got)
	}
	const text = "( ( ( [MAX 2 ) 9 ) ] )"
	if tokens, err = ParseExpression(nil, text); err != nil || string(AppendExpression(nil, tokens)) != text {
		t.Errorf("%s: written as %s, %v", text, AppendExpression(nil, tokens), err)
	}
	if tokens, err = ParseExpression(nil, "7"); err != nil || evaluateExpression(tokens, false) != 7 {
		t.Error(err)
	}
	for source, want := range map[string]string{
		"":              "not closed in 0 tokens",
		"[MAX 1":        "1 operators are not closed",
		"[MAX ]":        "closes no operator with arguments",
		"1 ]":           "follows its end",
		"]":             "closes no operator",
		"[MAX 1 ] 2":    `"2" follows its end`,
		"[AVERAGE 1 ]":  "is no digit, operator or ]",
		"[MAX 1 [MIN ]": "closes no operator",
	} {
		if _, err := ParseExpression(nil, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v", source, err)
		}
	}
}

// Rows of the official generator have the value in the file, and are written back unchanged.
func TestOfficialListOpsRowsHaveTheirValue(t *testing.T) {
	folder := filepath.Join(sharedData(t), "listops")
	src, err := OpenListOps(folder)
	if err != nil {
		t.Fatal(err)
	}
	if got := src.Spec().Count; got != [3]int{1000, 500, 500} {
		t.Errorf("samples %v", got)
	}
	for split, rows := range src.rows {
		for i, row := range rows {
			s := take(t, src, Split(split), i)
			if got := evaluateExpression(s.Tokens, false); got != row.Target {
				t.Fatalf("%v %d: worth %d, the file says %d", Split(split), i, got, row.Target)
			}
			if string(AppendExpression(nil, s.Tokens)) != row.Source {
				t.Fatalf("%v %d: written otherwise", Split(split), i)
			}
		}
	}
	holds(t, src)
	list, err := Baselines(src, 200)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("baselines: %v", list)
}

// Quantiles of the length, classes and root operators match 5,000 rows of the official
// generator.
func TestListOpsHasTheOfficialDistribution(t *testing.T) {
	src, err := NewListOps(ListOps{LowerBound: 500, UpperBound: 2000, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	const n = 4000
	var lengths []int
	var classes [10]float64
	var roots [4]float64
	mean := 0.
	_, err = eachSample(src, Train, n, func(s *Sample) {
		lengths = append(lengths, len(s.Tokens))
		mean += float64(len(s.Tokens)) / n
		classes[s.Class] += 1. / n
		roots[s.Tokens[0]-listMin] += 1. / n
		if evaluateExpression(s.Tokens, false) != int(s.Class) {
			t.Fatal("the class is not the value")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(lengths)
	// Five standard errors of both sides: a length has a deviation of about 400.
	slack := 5 * 400 * math.Sqrt(1./n+1./5000)
	if math.Abs(mean-1025) > slack {
		t.Errorf("mean length %.0f, 1025 is needed within %.0f", mean, slack)
	}
	for _, q := range []struct{ at, want float64 }{{0.05, 538}, {0.25, 694}, {0.5, 935}, {0.75, 1291}, {0.95, 1806}} {
		got := float64(lengths[int(q.at*n)])
		// The density of lengths is above 1/4000 everywhere.
		if slack := 5 * math.Sqrt(q.at*(1-q.at)*(1./n+1./5000)) * 4000; math.Abs(got-q.want) > slack {
			t.Errorf("quantile %g: %.0f, %.0f is needed within %.0f", q.at, got, q.want, slack)
		}
	}
	for c, want := range []float64{828, 475, 374, 394, 463, 434, 384, 371, 461, 816} {
		p := want / 5000
		if slack := 5 * math.Sqrt(p*(1-p)*(1./n+1./5000)); math.Abs(classes[c]-p) > slack {
			t.Errorf("class %d: share %.3f, %.3f is needed within %.3f", c, classes[c], p, slack)
		}
	}
	for r, share := range roots {
		if share < 0.1 || share > 0.45 {
			t.Errorf("operator %d is the root of %.2f", r, share)
		}
	}
}

func TestListOps6HasItsLength(t *testing.T) {
	src, err := NewListOps6(ListOps6{Min: 300, Max: 320, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i := range 300 {
		s := take(t, src, Train, i)
		seen[len(s.Tokens)] = true
		text := AppendExpression(nil, s.Tokens)
		back, err := ParseExpression(nil, string(text))
		if err != nil || !slices.Equal(back, s.Tokens) {
			t.Fatalf("sample %d is no expression: %v", i, err)
		}
		depth := 0
		for _, x := range s.Tokens {
			if x >= listMin {
				if depth++; depth > listDepth+1 {
					t.Fatalf("sample %d has depth %d", i, depth)
				}
			} else if x == listEnd {
				depth--
			}
		}
	}
	if len(seen) != 21 {
		t.Errorf("%d different lengths of 21", len(seen))
	}
}

func TestCopyRepeats(t *testing.T) {
	s := take(t, openSource(t, "copy", Options{}, "length", "7"), Train, 0)
	if !slices.Equal(s.Labels[7:], s.Tokens[:7]) || s.Tokens[7] != 0 || !slices.Equal(s.Tokens[8:], s.Tokens[:6]) || slices.Max(s.Labels[:7]) != -1 {
		t.Errorf("%+v", s)
	}
}

func TestInductionCanBeAnswered(t *testing.T) {
	src := openSource(t, "induction", Options{})
	for i := range 200 {
		s := take(t, src, Train, i)
		at := slices.Index(s.Tokens, 20)
		if at > len(s.Tokens)-3 || s.Tokens[len(s.Tokens)-1] != 20 || s.Labels[len(s.Tokens)-1] != s.Tokens[at+1] {
			t.Fatalf("%+v", s)
		}
	}
}

// The text before a question holds its answer, at a distance that is asked for.
func TestNeedlesCanBeAnswered(t *testing.T) {
	for _, c := range []struct{ length, distance, lines, least, most int }{
		{4096, 0, 16, 504, 4096}, {4096, 1024, 16, 1024 - 12, 1024 + 12}, {256, 0, 4, 60, 256}, {16384, 0, 16, 504, 16384}, {256, 200, 4, 188, 212},
	} {
		src, err := NewNeedle(Needle{Lines: 16, Distance: c.distance, Seed: 1}, DefaultCorpus(), c.length)
		if err != nil {
			t.Fatal(err)
		}
		keys, lines := [3]map[string]bool{}, 0
		for split := range keys {
			keys[split] = map[string]bool{}
			for i := range 8 {
				s := take(t, src, Split(split), i)
				labels := 0
				for j, y := range s.Labels {
					if y >= 0 {
						labels++
						if y != s.Tokens[j+1] || y < '0' || y > '9' {
							t.Fatalf("label %d of position %d, token %d", y, j, s.Tokens[j+1])
						}
					}
				}
				places := FindNeedles(&s)
				if labels != needleDigits*len(places) || len(places) == 0 {
					t.Fatalf("%+v: %d labels, %d questions", c, labels, len(places))
				}
				lines = max(lines, len(places))
				for _, p := range places {
					if d := p.Distance(); d < c.least || d > c.most {
						t.Errorf("%+v: a question at a distance of %d", c, d)
					}
					if !slices.Equal(s.Tokens[p.Line:p.Line+needleDigits], s.Tokens[p.Question:p.Question+needleDigits]) {
						t.Errorf("%+v: the line has another value than the question", c)
					}
					key := ""
					for _, x := range s.Tokens[p.Line-8 : p.Line-4] {
						key += string(rune(x))
					}
					keys[split][key] = true
				}
			}
		}
		if lines != c.lines && c.distance == 0 {
			t.Errorf("%+v: up to %d lines", c, lines)
		}
		for key := range keys[Test] {
			if keys[Train][key] || keys[Valid][key] {
				t.Errorf("key %s of a test question is in another split", key)
			}
		}
	}
}

// Rules that do not read the key answer one question in ten, or the one that follows its line.
func TestBaselinesOfNeedlesStayNearChance(t *testing.T) {
	src, err := NewNeedle(Needle{Lines: 16, Seed: 1}, DefaultCorpus(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	list, err := Baselines(src, 64)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	// 64 windows of 16 values of 4 digits: five standard errors of a share of 0.1.
	slack := 5 * math.Sqrt(0.1*0.9/(64*16*4))
	for _, b := range list {
		if b.Score > 0.1+1./16+slack || b.Score < 0.1-slack {
			t.Errorf("%s has an accuracy of %.3f", b.Name, b.Score)
		}
	}
	// With one line the value before is the answer.
	one, err := NewNeedle(Needle{Lines: 1, Seed: 1}, DefaultCorpus(), 4096)
	if err != nil {
		t.Fatal(err)
	}
	if list, err = Baselines(one, 8); err != nil || list[1].Score != 1 {
		t.Errorf("baselines of one line %v, %v", list, err)
	}
}

func TestMQARDrawsShorterSequences(t *testing.T) {
	src := openSource(t, "mqar", Options{}, "vocab", "300", "length", "256", "pairs", "16").(WindowDrawer)
	key := rng.New(1)
	var s Sample
	for _, n := range []int{4, 32, 66, 256} {
		for i := range 100 {
			if err := src.DrawWindow(&s, n, key, uint64(i)); err != nil {
				t.Fatal(err)
			}
			asked := 0
			for at, y := range s.Labels {
				if y < 0 {
					continue
				}
				asked++
				if k := slices.Index(s.Tokens, s.Tokens[at]); k%2 != 0 || s.Tokens[k+1] != y {
					t.Fatalf("sample %d, position %d asks %d for %d", i, at, s.Tokens[at], y)
				}
			}
			if asked != min(16, n/4) || len(s.Tokens) != n || len(s.Labels) != n {
				t.Fatalf("%d of %d tokens, %d labels, are asked for in %d", asked, len(s.Tokens), len(s.Labels), n)
			}
		}
	}
	for _, n := range []int{2, 33, 258} {
		if err := src.DrawWindow(&s, n, key, 0); err == nil || !strings.Contains(err.Error(), "an even number from 4 to the length, 256, is needed") {
			t.Errorf("%d tokens: error %v", n, err)
		}
	}
}

func TestListOpsDrawsShorterExpressions(t *testing.T) {
	src := openSource(t, "listops", Options{}, "above", "100", "below", "400").(WindowDrawer)
	key := rng.New(1)
	var s Sample
	for _, n := range []int{4, 40, 133, 399} {
		for i := range 100 {
			if err := src.DrawWindow(&s, n, key, uint64(i)); err != nil {
				t.Fatal(err)
			}
			if len(s.Tokens) > n || 4*len(s.Tokens) <= n-3 || s.Class != int32(evaluateExpression(s.Tokens, false)) {
				t.Fatalf("sample %d: %d tokens of class %d in %d", i, len(s.Tokens), s.Class, n)
			}
		}
	}
	for _, n := range []int{3, 400} {
		if err := src.DrawWindow(&s, n, key, 0); err == nil || !strings.Contains(err.Error(), "4 to 399 are needed") {
			t.Errorf("%d tokens: error %v", n, err)
		}
	}
	src = openSource(t, "listops6", Options{}, "min", "100", "max", "400").(WindowDrawer)
	for _, n := range []int{8, 40, 400} {
		for i := range 100 {
			if err := src.DrawWindow(&s, n, key, uint64(i)); err != nil {
				t.Fatal(err)
			}
			if len(s.Tokens) > n || len(s.Tokens) < max(8, n/4) || s.Class != int32(evaluateExpression(s.Tokens, true)) {
				t.Fatalf("listops6, sample %d: %d tokens of class %d in %d", i, len(s.Tokens), s.Class, n)
			}
		}
	}
	for _, n := range []int{7, 401} {
		if err := src.DrawWindow(&s, n, key, 0); err == nil || !strings.Contains(err.Error(), "8 to 400") {
			t.Errorf("listops6, %d tokens: error %v", n, err)
		}
	}
	narrow := openSource(t, "listops", Options{}, "above", "397", "below", "400").(WindowDrawer)
	if err := narrow.DrawWindow(&s, 100, key, 0); err == nil || !strings.Contains(err.Error(), "in proportion to lengths above 397 and below 400") {
		t.Errorf("no length is left: error %v", err)
	}
}

func TestMQARCanBeAnswered(t *testing.T) {
	src := openSource(t, "mqar", Options{}, "vocab", "300", "length", "128", "pairs", "32", "random", "false")
	near, far := 0, 0
	for i := range 100 {
		s := take(t, src, Train, i)
		want := map[int32]int32{}
		for k := range 32 {
			key, v := s.Tokens[2*k], s.Tokens[2*k+1]
			if key < 1 || key >= 150 || v < 150 || want[key] != 0 {
				t.Fatalf("pair %d %d", key, v)
			}
			want[key] = v
		}
		asked := 0
		for at, y := range s.Labels {
			if y < 0 {
				continue
			}
			asked++
			if at < 64 || at%2 != 0 || want[s.Tokens[at]] != y {
				t.Fatalf("position %d asks %d for %d", at, s.Tokens[at], y)
			}
		}
		if asked != 32 {
			t.Fatalf("%d keys are asked for", asked)
		}
	}
	src = openSource(t, "mqar", Options{}, "vocab", "300", "length", "256", "pairs", "4")
	for i := range 300 {
		for at, y := range take(t, src, Train, i).Labels {
			if y >= 0 && at < 8+62 {
				near++
			} else if y >= 0 {
				far++
			}
		}
	}
	if near < 2*far {
		t.Errorf("%d gaps in the first quarter, %d behind it: short ones are not favoured", near, far)
	}
}

// Reference values of the task: mean of the targets 32.9, input itself 6.34, acceptance rate of
// drawings 0.163, mean and deviation of signals 3.33 and 6.26.
func TestShapesHasReferenceBaselines(t *testing.T) {
	src := openSource(t, "shapes", Options{Seed: 5})
	list, err := Baselines(src, 1000)
	if err != nil {
		t.Fatal(err)
	}
	// 1,000 test sequences: the errors are heavy-tailed, their deviation about 1 and 0.3.
	if math.Abs(list[0].Score-32.9) > 5 || math.Abs(list[1].Score-6.34) > 1.5 {
		t.Errorf("baselines %v", list)
	}
	sum, squares, n := 0., 0., 0
	_, err = eachSample(src, Train, 4000, func(s *Sample) {
		for _, v := range s.Values {
			sum, squares, n = sum+float64(v), squares+float64(v)*float64(v), n+1
		}
	})
	mean := sum / float64(n)
	if deviation := math.Sqrt(squares/float64(n) - mean*mean); err != nil || math.Abs(mean-3.33) > 0.1 || math.Abs(deviation-6.26) > 0.15 {
		t.Errorf("signals have mean %.3f and deviation %.3f, %v", mean, deviation, err)
	}
	t.Logf("baselines %v, mean %.3f", list, mean)
}

func FuzzExpression(f *testing.F) {
	f.Add("( ( ( [MAX 2 ) 9 ) ] )")
	f.Add("[SM 3 [MED 9 4 ] ]")
	f.Fuzz(func(t *testing.T, source string) {
		tokens, err := ParseExpression(nil, source)
		if err != nil {
			return
		}
		if v := evaluateExpression(tokens, true); v < 0 || v > 9 {
			t.Errorf("worth %d", v)
		}
		again, err := ParseExpression(nil, string(AppendExpression(nil, tokens)))
		if err != nil || !slices.Equal(again, tokens) {
			t.Errorf("%q comes back as %v, %v", source, again, err)
		}
	})
}
