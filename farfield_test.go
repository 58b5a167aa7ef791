package farfield_test

import (
	"errors"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield"
	"github.com/farfield-ml/farfield/mechanism"
)

// Four tokens of width 2 attend to themselves and to what came before.
func ExampleAttend() {
	q := []float32{1, 0, 0, 1, 1, 1, 2, 1}
	o, err := farfield.Attend("fastmax", q, q, q, farfield.Options{Width: 2, Causal: true})
	fmt.Println(o[:2], err)
	// Output: [1 0] <nil>
}

// Eight heads of width 16 over a thousand tokens; each query sees its own token and earlier ones.
func ExampleAttend_heads() {
	const heads, n, d = 8, 1000, 16 // q, k, v and o are [heads,n,d]
	q, k, v := random(heads*n*d), random(heads*n*d), random(heads*n*d)
	o, err := farfield.Attend("fastmax", q, k, v, farfield.Options{Width: d, Heads: heads, Causal: true})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(o) == heads*n*d)
	// Output: true
}

// random returns n numbers from a normal distribution.
func random(n int) []float32 {
	x := make([]float32, n)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func TestAttendNamesWhatDoesNotFit(t *testing.T) {
	x := make([]float32, 12)
	for _, c := range []struct {
		name string
		o    farfield.Options
		q    []float32
		want string
	}{
		{"fastmax", farfield.Options{}, x, "Width is 0"},
		{"fastmax", farfield.Options{Width: 5}, x, "q has 12 elements"},
		{"fastmax", farfield.Options{Width: 2, Keys: 4}, x, "k has 12 elements"},
		{"fastmax", farfield.Options{Width: 2}, nil, "k has 12 elements"},
		{"fastmax", farfield.Options{Width: 2, Heads: -1}, x, "Heads is -1"},
		{"fastmax", farfield.Options{Width: 2, KV: -2}, x, "KV is -2"},
		{"fastmax", farfield.Options{Width: 2, Keys: -3}, x, "Keys is -3"},
		{"fastmax", farfield.Options{Width: 2, KV: 4}, x, "KV is 4, which does not divide Heads, 1"},
		{"fastmax", farfield.Options{Width: 2, Heads: 2, KV: 3, Keys: 2}, x, "KV is 3, which does not divide Heads, 2"},
		{"fastmax", farfield.Options{Width: 4, Keys: 2}, x, "k has 12 elements"},
		{"fastmax", farfield.Options{Width: 1, Keys: 12, Order: 99}, x, "order 99"},
		// Products that are 1 or 0 where integers wrap.
		{"fastmax", farfield.Options{Width: math.MaxInt, Heads: math.MaxInt}, x, "q has 12 elements"},
		{"fastmax", farfield.Options{Width: 1, Heads: 4, KV: 4, Keys: math.MaxInt/4 + 1}, x, "k has 12 elements"},
		{"fastmix", farfield.Options{Width: 2}, x, "fastmix"},
	} {
		o, err := farfield.Attend(c.name, c.q, x, x, c.o)
		if o != nil || err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, farfield.ErrInput) {
			t.Errorf("%v: error %v, want an ErrInput that says %q", c.o, err, c.want)
		}
	}
}

// Every mechanism's weights sum to one, so equal values come out unchanged,
// with grouped heads and with more keys than queries.
func TestAttendAverages(t *testing.T) {
	const d, h, kv, n, m = 3, 4, 2, 5, 7
	q, k, v := make([]float32, h*n*d), make([]float32, kv*m*d), make([]float32, kv*m)
	for i := range q {
		q[i] = float32(math.Sin(float64(i)))
	}
	for i := range k {
		k[i] = float32(math.Cos(float64(3 * i)))
	}
	for i := range v {
		v[i] = 2
	}
	for _, name := range []string{"softmax", "fastmax", "taylorshift", "linear"} {
		for _, causal := range []bool{false, true} {
			o, err := farfield.Attend(name, q, k, v, farfield.Options{Width: d, Heads: h, KV: kv, Keys: m, Causal: causal})
			if err != nil {
				t.Fatal(err)
			}
			if len(o) != h*n {
				t.Fatalf("%s: %d outputs, want %d", name, len(o), h*n)
			}
			for i, x := range o {
				// linear adds 1e-6 to a denominator of order one.
				if math.Abs(float64(x)-2) > 1e-5 {
					t.Errorf("%s: output %d is %g, want 2", name, i, x)
				}
			}
		}
	}
}

// A mechanism whose numbers mean nothing without training is not computed with random ones
// unless these are asked for.
func TestAttendDrawsNoLearnedNumbersUnasked(t *testing.T) {
	const n, d = 6, 4
	x := random(n * d)
	refused := 0
	for _, name := range mechanism.Names() {
		row, err := mechanism.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		if row.Untrained == "" {
			continue
		}
		refused++
		o := farfield.Options{Width: d, Set: map[string]string{}}
		out, err := farfield.Attend(name, x, x, x, o)
		if out != nil || err == nil || !strings.Contains(err.Error(), name+" has learned parameters") || !strings.Contains(err.Error(), "Params") {
			t.Errorf("%s: error is %v", name, err)
		}
		m, err := mechanism.New(name, mechanism.Options{Heads: 1, Width: d, Length: n})
		if err != nil {
			t.Fatal(err)
		}
		o.Params = map[string][]float32{}
		for _, p := range slices.Concat(m.Params().All(), m.Constants().All()) {
			o.Params[p.Name] = p.Data
		}
		if _, err := farfield.Attend(name, x, x, x, o); err != nil {
			t.Errorf("%s with its parameters: %v", name, err)
		}
		first := slices.Concat(m.Params().All(), m.Constants().All())[0].Name
		o.Params[first] = o.Params[first][1:]
		if _, err := farfield.Attend(name, x, x, x, o); err == nil || !strings.Contains(err.Error(), "Params: "+first+" has ") {
			t.Errorf("%s with a short parameter: error is %v", name, err)
		}
		o.Params = map[string][]float32{"none": nil}
		if _, err := farfield.Attend(name, x, x, x, o); err == nil || !strings.Contains(err.Error(), "Params: "+name+" has no none") {
			t.Errorf("%s with another parameter: error is %v", name, err)
		}
		if name == "transformer-xl" {
			continue
		}
		o.Params, o.Set["seed"] = nil, "1"
		if _, err := farfield.Attend(name, x, x, x, o); err != nil {
			t.Errorf("%s with a seed: %v", name, err)
		}
	}
	if refused != 6 {
		t.Errorf("%d mechanisms are refused, needs 6", refused)
	}
}

func TestThreadsAreLimited(t *testing.T) {
	before := farfield.Threads()
	if err := farfield.SetThreads(-1); err == nil || !strings.Contains(err.Error(), "threads: -1") {
		t.Errorf("error is %v", err)
	}
	if err := farfield.SetThreads(1); err != nil || farfield.Threads() != 1 {
		t.Errorf("%d threads, %v", farfield.Threads(), err)
	}
	x := random(8 * 1000 * 16)
	o := farfield.Options{Width: 16, Heads: 8}
	one, err := farfield.Attend("fastmax", x, x, x, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := farfield.SetThreads(0); err != nil || farfield.Threads() != before {
		t.Errorf("%d threads, %v, needs %d", farfield.Threads(), err, before)
	}
	if all, err := farfield.Attend("fastmax", x, x, x, o); err != nil || !slices.Equal(all, one) {
		t.Errorf("results depend on the threads (%v)", err)
	}
}
