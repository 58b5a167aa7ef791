// Package golden compares arrays that other programs wrote in float64 with this build. A case is a
// mechanism with settings, its inputs, and the outputs and gradients that are expected.
//
// A folder has files in pairs: NAME.json lists cases, and NAME.npz has their arrays. The array x of
// the case c is named c.x, or x if several cases share it. convert.py writes such files from
// published fixtures.
package golden

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/farfield-ml/farfield/internal/array"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/strict"
	"github.com/farfield-ml/farfield/model"
)

// Case is the outcome of one case in one form and precision.
type Case struct {
	File      string   `json:"file"`
	Name      string   `json:"case"`
	Mechanism string   `json:"mechanism,omitempty"`
	Form      string   `json:"form,omitempty"`
	Precision string   `json:"precision,omitempty"` // float32 or float64
	Arrays    []string `json:"arrays,omitempty"`    // compared
	Worst     string   `json:"worst,omitempty"`     // array with the largest error
	Err       float64  `json:"err"`                 // largest error in units of its tolerance; MaxFloat64 if not finite
	Skipped   string   `json:"skipped,omitempty"`   // why nothing was compared
	Problem   string   `json:"problem,omitempty"`   // why nothing could be compared
	Failed    bool     `json:"failed"`              // Err > 1 or Problem
}

// problem is a case of a file.
type problem struct {
	Name      string `json:"case"`
	Skip      string `json:"skip"` // why it is not compared
	Mechanism string `json:"mechanism"`

	// The options of the mechanism.
	Order  int               `json:"order"`
	Heads  int               `json:"heads"`
	Width  int               `json:"width"`
	Length int               `json:"length"`
	Set    map[string]string `json:"set"`

	// A mixer with projections of its own is compared instead of a mechanism with Layer, a whole
	// model with Model. They read the rows x.
	Layer bool          `json:"layer"`
	Model *model.Config `json:"model"`

	Causal bool    `json:"causal"`
	Drop   string  `json:"drop"` // element, token or product: which masks drop_q and drop_k are
	Rate   float64 `json:"rate"` // of dropout
	DAux   float64 `json:"daux"` // gradient of the auxiliary loss
	Each   string  `json:"each"` // a constant with a value for each batch row, which runs by itself

	// Forms are direct and linear, which give all of Want, and step and state, which give the
	// output o: token by token, or from a state that has absorbed all keys.
	Forms []string `json:"forms"`
	Want  []string `json:"want"` // the arrays to compare: o, den, aux, dq, dk, dv, dlog_g, d and a parameter
	// Tolerance has factors of the largest value, of outputs and of gradients. Without it, limits
	// follow from the condition of each row by Book: see docs/numerics.md.
	Tolerance []float64 `json:"tolerance"`
	Book      *book     `json:"book"`

	*arrays  `json:"-"`
	solution *oracle.Result
}

// book describes the textbook's mechanism, beside tau, which is an array.
type book struct {
	Norm       string    `json:"norm"`
	Scale      float64   `json:"scale"`
	Coef       []float64 `json:"coef"`
	Exp        bool      `json:"exp"`
	OutputNorm bool      `json:"output_norm"`
	// Positive is set if weights are positive: max|v| alone measures the error of outputs.
	Positive bool `json:"positive"`
}

// Run compares every golden file of dir, in the order of their names, and reports each case as it
// ends. A file that cannot be read is a failed case. Run returns an error only if the folder has no
// golden file.
func Run(dir string, report func(Case)) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("%s: holds no golden files (.json beside .npz)", dir)
	}
	for _, path := range paths {
		runFile(path, report)
	}
	return nil
}

func runFile(path string, report func(Case)) {
	base := strings.TrimSuffix(filepath.Base(path), ".json")
	list, closer, err := readFile(path)
	if err != nil {
		report(Case{File: base, Problem: err.Error(), Failed: true})
		return
	}
	defer closer()
	for _, p := range list {
		if p.Skip != "" {
			report(Case{File: base, Name: p.Name, Skipped: p.Skip})
			continue
		}
		for _, form := range p.Forms {
			c := p.compare(form)
			c.File = base
			report(c)
		}
	}
}

// readFile reads the cases of a file. closer closes its arrays.
func readFile(path string) (list []*problem, closer func() error, err error) {
	text, err := infile.ReadBounded(path, 1<<20)
	if err == nil {
		err = strict.Unmarshal(text, &list)
	}
	if err == nil {
		err = checkList(list)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &array.File{}
	if slices.ContainsFunc(list, func(p *problem) bool { return p.Skip == "" }) {
		if f, err = array.OpenNPZ(strings.TrimSuffix(path, ".json") + ".npz"); err != nil {
			return nil, nil, err
		}
	}
	for _, p := range list {
		p.arrays = &arrays{file: f, prefix: p.Name + "."}
	}
	return list, f.Close, nil
}

// checkList returns an error for a list, or a case in it, of which nothing would be compared.
func checkList(list []*problem) error {
	if len(list) == 0 {
		return errors.New("has no cases")
	}
	for i, p := range list {
		switch {
		case p == nil:
			return fmt.Errorf("case %d: is null", i)
		case p.Skip == "" && len(p.Forms) == 0:
			return fmt.Errorf("case %d, %q: forms: is empty", i, p.Name)
		}
	}
	return nil
}

// compare runs p in a form and compares what it gives with the file.
func (p *problem) compare(form string) Case {
	c := Case{Name: p.Name, Mechanism: p.Mechanism, Form: form, Precision: check.Precision}
	err := p.compareInto(&c)
	if err != nil {
		c.Problem = err.Error()
	}
	if err != nil || math.IsInf(c.Err, 0) {
		c.Err = math.MaxFloat64
	}
	c.Failed = c.Err > 1
	return c
}

func (p *problem) compareInto(c *Case) (err error) {
	defer func() { // arrays that do not fit each other, in code that reads them as they should be
		r := recover()
		if e, is := r.(runtime.Error); is {
			err = fmt.Errorf("arrays do not fit each other: %w", e)
		} else if r != nil {
			panic(r)
		}
	}()
	if _, known := forms[c.Form]; !known {
		return fmt.Errorf("forms: %q is unknown", c.Form)
	}
	got, l, err := p.run(c.Form)
	if err != nil {
		return err
	}
	want := p.Want
	if c.Form == "step" || c.Form == "state" {
		want = []string{"o"}
	}
	for _, what := range want {
		ref, x := p.floats(what), got[what]
		if p.err != nil {
			return p.err
		}
		if len(x) != len(ref) || len(x) == 0 {
			return fmt.Errorf("%s: has %d elements, needs %d", what, len(ref), len(x))
		}
		if !slices.ContainsFunc(ref, func(r float64) bool { return r == r }) {
			return fmt.Errorf("%s: has no numbers", what)
		}
		if e := p.worstRatio(what, x, ref, l); len(c.Arrays) == 0 || e > c.Err {
			c.Worst, c.Err = what, e
		}
		c.Arrays = append(c.Arrays, what)
	}
	if len(want) == 0 {
		return errors.New("want: is empty")
	}
	return p.err
}

// worstRatio returns the largest error of x, whose parts of equal length have limits of their own,
// in units of its limit. It passes over elements that are NaN in ref: a mask excludes them.
func (p *problem) worstRatio(what string, x []float, ref []float64, l check.Limits) float64 {
	limits := p.limits(what, ref, l)
	n := len(x) / len(limits)
	if n*len(limits) != len(x) {
		return math.Inf(1)
	}
	var worst float64
	for i, limit := range limits {
		got, want := x[i*n:][:n], ref[i*n:][:n]
		if slices.ContainsFunc(want, math.IsNaN) {
			got, want = slices.Clone(got), slices.Clone(want)
			for j, w := range want {
				if math.IsNaN(w) {
					got[j], want[j] = 0, 0
				}
			}
		}
		worst = max(worst, check.ErrorRatio(got, want, limit))
	}
	return worst
}

// limits returns what the equal parts of an array may err. l has the limits of the form.
func (p *problem) limits(what string, ref []float64, l check.Limits) []float64 {
	isOutput := !isGradient(what)
	size := 0.0
	for _, x := range ref {
		if !math.IsNaN(x) {
			size = max(size, math.Abs(x))
		}
	}
	v, do := check.MaxAbs(p.heads("v").Data), check.MaxAbs(p.heads("do").Data)
	if len(p.Tolerance) == 2 {
		factor := p.Tolerance[1]
		if isOutput {
			factor = p.Tolerance[0]
		}
		if check.Precision == "float64" { // factors are of float32
			factor = 1e-9
		}
		if size < 1e-12*do { // nothing but rounding of a zero
			return []float64{1e-6 * do}
		}
		return []float64{factor * size}
	}
	if p.Book == nil {
		p.err = errors.New("neither tolerance nor book")
		return []float64{0}
	}
	r := p.solve()
	switch {
	case isOutput:
		list := make([]float64, len(r.Cond))
		n := len(ref) / len(list)
		for i, cond := range r.Cond {
			switch {
			case what == "den":
				list[i] = l.Sum(p.heads("k").N, cond*math.Abs(ref[i]))
			case p.Book.Positive:
				list[i] = l.Output(1, r.Factor[i]*v)
			default:
				list[i] = l.Output(cond, r.Factor[i]*v+check.MaxAbs(ref[i*n:][:n]))
			}
		}
		return list
	case p.Book.Exp:
		return []float64{l.Gradient(1, size)}
	}
	size = max(size, do*v)
	if what == "dtau" || what == "dlog_g" { // a sum over queries
		size *= float64(p.heads("q").N)
	}
	return []float64{l.Gradient(check.MaxAbs(r.Cond), size)}
}

// norms are the names of the textbook's normalisations.
var norms = []string{
	oracle.NoNorm: "", oracle.Standard: "standard", oracle.Unit: "unit", oracle.Max: "max", oracle.MaxSquared: "max-squared",
	oracle.TokenCentred: "token-centred", oracle.ChannelCentred: "channel-centred", oracle.GlobalCentred: "global-centred",
}

// solve returns the reference's result.
func (p *problem) solve() *oracle.Result {
	if p.solution == nil {
		c := p.textbookCall()
		p.solution = p.textbook().Forward(&c)
	}
	return p.solution
}

// textbook returns the reference's mechanism.
func (p *problem) textbook() *oracle.Mechanism {
	norm := slices.Index(norms, p.Book.Norm)
	if norm < 0 {
		p.err = fmt.Errorf("norm: %q is unknown", p.Book.Norm)
		norm = 0
	}
	m := &oracle.Mechanism{Norm: oracle.Norm(norm), Scale: p.Book.Scale, Coef: p.Book.Coef, Exp: p.Book.Exp, OutputNorm: p.Book.OutputNorm}
	if p.has("tau") {
		m.Tau = p.floats("tau")
	}
	return m
}
