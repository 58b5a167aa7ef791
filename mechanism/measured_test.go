package mechanism

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// measured is where the numbers of the page that a machine gave lie, as
//
//	farfield bench zoo -n 1024,4096,16384 --measure forward,decode --json
//
// prints them. make zoo writes it.
var measured = filepath.Join("..", "docs", "zoo.jsonl")

var measuredPage = filepath.Join("..", "docs", "results", "zoo.md")

const (
	measuredBegin = "<!-- measured: make zoo -->\n"
	measuredEnd   = "<!-- end of measured -->\n"
)

// figure holds the fields that the page needs from a line of the file.
type figure struct {
	Mechanism, Form, ISA, Machine string
	Causal                        bool
	N, M, D, Heads, Threads       int
	Ms                            float64
	Guess                         float64 `json:"guess_ms"`
	Extra                         float64 `json:"extra_bytes"`
}

func readFigures(text []byte) (list []figure, err error) {
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var f figure
		if err := json.Unmarshal(s.Bytes(), &f); err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// lengths are the numbers of tokens in the tables of the page; afterTokens is the number of
// tokens before a decoded token.
var lengths = []int{1024, 4096, 16384}

const afterTokens = 4096

// time writes milliseconds, with ~ where they are foretold.
func (f *figure) time() string {
	ms, sign := f.Ms, ""
	if ms == 0 {
		ms, sign = f.Guess, "~"
	}
	switch {
	case ms < 1:
		return sign + digits(1e3*ms) + " µs"
	case ms < 1e3:
		return sign + digits(ms) + " ms"
	}
	return sign + digits(ms/1e3) + " s"
}

// digits writes x with two digits, or all before the point.
func digits(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.1f", x)
}

// memory writes bytes.
func (f *figure) memory() string {
	switch kib := f.Extra / 1024; {
	case f.Extra == 0:
		return "–"
	case kib < 1024:
		return digits(kib) + " KiB"
	default:
		return digits(kib/1024) + " MiB"
	}
}

// measuredLine returns the line of a row in the table of measured times.
func measuredLine(list []figure, name string, streams bool, distances ...float64) string {
	at := func(n, m int) *figure {
		i := slices.IndexFunc(list, func(f figure) bool { return f.Mechanism == name && f.N == n && f.M == m })
		if i < 0 {
			return nil
		}
		return &list[i]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| `%s` |", name)
	for _, n := range lengths {
		if f := at(n, n); f != nil {
			fmt.Fprintf(&b, " %s | %s |", f.time(), f.memory())
		} else {
			b.WriteString(" – | – |")
		}
	}
	token := "–"
	if f := at(1, afterTokens); f != nil {
		token = f.time()
		if !streams {
			token += ", grows"
		}
	}
	fmt.Fprintf(&b, " %s |", token)
	for _, d := range distances {
		if math.IsNaN(d) {
			b.WriteString(" – |")
		} else {
			fmt.Fprintf(&b, " %.2f |", d)
		}
	}
	return b.String() + "\n"
}

// conditions returns the conditions of the measured figures, each combination once.
func conditions(list []figure) string {
	var seen []string
	for _, f := range list {
		if text := fmt.Sprintf("%s; %s kernels; %d threads; %d heads of width %d", f.Machine, f.ISA, f.Threads, f.Heads, f.D); !slices.Contains(seen, text) {
			seen = append(seen, text)
		}
	}
	if seen == nil {
		return "Not measured yet: `make zoo` does it."
	}
	return "Measured on " + strings.Join(seen, ", and on ") + "."
}

// Scores of softmax that distances are taken for have this deviation.
var deviations = []float64{1, 3}

const distanceTokens, distanceWidth = 256, 32

// fromSoftmax returns, for each of deviations, the distance Σ_j |a_ij - s_ij| between the
// attention rows of a mechanism and of softmax, averaged over rows i. It is at most 2 for
// nonnegative weights. Rows of q and k are normal, with the length at which scores q·k/√D
// have that deviation. Row "" has equal weights.
func fromSoftmax(name string, o Options) (list []float64, err error) {
	const n, d = distanceTokens, distanceWidth
	key := rng.New(5)
	for _, deviation := range deviations {
		c := &attention.Call{Q: tensor.NewHeads(1, 1, n, d), K: tensor.NewHeads(1, 1, n, d), V: tensor.NewHeads(1, 1, n, d)}
		for i := range c.Q.Data {
			c.Q.Data[i] = float(math.Sqrt(deviation) * key.Fold(1).Normal(uint64(i)))
			c.K.Data[i] = float(math.Sqrt(deviation) * key.Fold(2).Normal(uint64(i)))
		}
		rows := func(name string, o Options) (tensor.Mat, error) {
			a := tensor.Mat{Data: make([]float, n*n), Rows: n, Cols: n, Stride: n}
			if name == "" {
				for i := range a.Data {
					a.Data[i] = 1.0 / n
				}
				return a, nil
			}
			o.Heads, o.Width, o.Length = 1, d, n
			m, err := New(name, o)
			if err != nil {
				return a, err
			}
			c.Causal = c.Causal || m.Traits().CausalOnly
			return a, m.Weights(a, c, 0, 0, 0, n)
		}
		a, err := rows(name, o)
		if errors.Is(err, attention.ErrNoMatrix) {
			list = append(list, math.NaN())
			continue
		}
		if err != nil {
			return nil, err
		}
		s, err := rows("softmax", Options{})
		if err != nil {
			return nil, err
		}
		sum := 0.0
		for i, x := range a.Data {
			sum += math.Abs(float64(x) - float64(s.Data[i]))
		}
		list = append(list, sum/n)
	}
	return list, nil
}

// approximations are settings that bring a mechanism nearer to softmax, or that
// show what its parameters are worth.
var approximations = []struct {
	name  string
	order int
	set   []string
}{
	{"fastmax", 1, []string{"scale", "1/sqrt(D)"}},
	{"fastmax", 2, []string{"scale", "1/sqrt(D)"}},
	{"fastmax", 3, []string{"scale", "1/sqrt(D)"}},
	{"fastmax", 4, []string{"scale", "1/sqrt(D)"}},
	{"taylorshift", 2, []string{"tau", "sqrt(D)"}},
	{"sata", 2, nil}, {"sata", 4, nil}, {"sata", 6, nil},
	{"performer", 0, []string{"features", "32"}},
	{"performer", 0, []string{"features", "512"}},
	{"performer", 0, []string{"features", "512", "projection", "iid"}},
	{"performer", 0, []string{"features", "512", "kernel", "hyperbolic"}},
	{"performer", 0, []string{"features", "2048"}},
	{"nystrom", 0, []string{"landmarks", "16"}},
	{"nystrom", 0, []string{"landmarks", "128"}},
	{"nystrom", 0, []string{"iterations", "20"}},
	{"informer", 0, []string{"factor", "20"}},
	{"eva", 0, []string{"window", "64", "landmarks", "64"}},
}

// measuredTables are the generated part of the page about speed, memory and
// distances.
func measuredTables(list []figure) (text string, err error) {
	var b strings.Builder
	b.WriteString(conditions(list) + "\n\n| name |")
	for _, n := range lengths {
		fmt.Fprintf(&b, " %d | memory |", n)
	}
	b.WriteString(" token |")
	for _, d := range deviations {
		fmt.Fprintf(&b, " distance, scores of %g |", d)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", 2*len(lengths)+1+len(deviations)) + "\n")
	for _, name := range Names() {
		m, err := New(name, Options{Heads: 1, Width: distanceWidth, Length: distanceTokens})
		if err != nil {
			return "", err
		}
		d, err := fromSoftmax(name, Options{})
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		b.WriteString(measuredLine(list, name, m.Traits().Streaming, d...))
	}
	b.WriteString("\nDistances with other settings:\n\n| settings |")
	for _, d := range deviations {
		fmt.Fprintf(&b, " scores of %g |", d)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(deviations)) + "\n")
	line := func(label string, name string, o Options) error {
		d, err := fromSoftmax(name, o)
		if err != nil {
			return fmt.Errorf("%s: %w", label, err)
		}
		b.WriteString("| " + label + " |")
		for _, x := range d {
			fmt.Fprintf(&b, " %.2f |", x)
		}
		b.WriteByte('\n')
		return nil
	}
	if err := line("equal weights", "", Options{}); err != nil {
		return "", err
	}
	for _, x := range approximations {
		o := Options{Order: x.order, Set: map[string]string{}}
		label := "`" + x.name
		if x.order > 0 {
			label += fmt.Sprintf(" p=%d", x.order)
		}
		for i := 0; i < len(x.set); i += 2 {
			o.Set[x.set[i]] = x.set[i+1]
			label += " " + x.set[i] + "=" + x.set[i+1]
		}
		if err := line(label+"`", x.name, o); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// TestPageShowsWhatWasMeasured holds the tables of docs/results/zoo.md to docs/zoo.jsonl and to
// the distances from softmax, which are computed here.
func TestPageShowsWhatWasMeasured(t *testing.T) {
	if precision == "float32" {
		t.Skip("distances are those of float64: the inverse of nystrom has other digits in float32")
	}
	text, err := os.ReadFile(measured)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	list, err := readFigures(text)
	if err != nil {
		t.Fatal(err)
	}
	want, err := measuredTables(list)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(measuredPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(whole), measuredBegin)
	have, after, ends := strings.Cut(rest, measuredEnd)
	if !begins || !ends {
		t.Fatal("docs/results/zoo.md has no place for what was measured")
	}
	if *write {
		if err := os.WriteFile(measuredPage, []byte(before+measuredBegin+want+measuredEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if have != want {
		t.Errorf("docs/results/zoo.md is not as measured: run go test -tags float64 ./mechanism -run TestPage -write; it would be\n%s", want)
	}
}

func TestMeasuredLineFormatsFigures(t *testing.T) {
	list, err := readFigures([]byte(`{"mechanism":"softmax","n":1024,"m":1024,"ms":0.25,"extra_bytes":2048,"form":"direct"}
{"mechanism":"softmax","n":4096,"m":4096,"ms":12.34,"extra_bytes":1600000}
{"mechanism":"softmax","n":16384,"m":16384,"ms":0,"guess_ms":31234}
{"mechanism":"softmax","n":1,"m":4096,"ms":0.0042,"form":"step"}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ got, want string }{
		{measuredLine(list, "softmax", false, 0, 1.234), "| `softmax` | 250 µs | 2.0 KiB | 12 ms | 1.5 MiB | ~31 s | – | 4.2 µs, grows | 0.00 | 1.23 |\n"},
		{measuredLine(list, "luna", false, 0.5), "| `luna` | – | – | – | – | – | – | – | 0.50 |\n"},
	} {
		if c.got != c.want {
			t.Errorf("%swant\n%s", c.got, c.want)
		}
	}
	if _, err := readFigures([]byte("{\n")); err == nil {
		t.Error("half an object is read")
	}
}

// Softmax is at no distance from itself, in whatever scores.
func TestSoftmaxIsAtNoDistanceFromItself(t *testing.T) {
	for name, want := range map[string]func(x float64) bool{
		"softmax": func(x float64) bool { return x == 0 },
		"based":   func(x float64) bool { return x > 0 && x < 2 },
	} {
		list, err := fromSoftmax(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, x := range list {
			if !want(x) {
				t.Errorf("%s is %g from softmax with scores of %g", name, x, deviations[i])
			}
		}
	}
}
