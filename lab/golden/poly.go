package golden

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/mechanism"
)

var paperCase = regexp.MustCompile(`^p([1-9][0-9]?)_(full|causal|causal_offset|keymask)$`)

// polyCases finds the cases of a file of polynomial attention by its outputs,
// the arrays o_CASE.
func polyCases(f *file) (problems []*problem, skips []skip) {
	for _, name := range f.sortedNames() {
		key, isOutput := strings.CutPrefix(name, "o_")
		if !isOutput {
			continue
		}
		p, reason := polyCase(f, key)
		if p == nil {
			skips = append(skips, skip{key, reason})
			continue
		}
		problems = append(problems, p)
	}
	if len(problems)+len(skips) == 0 {
		skips = append(skips, skip{"", "no outputs (o_CASE, or out beside an index.json)"})
	}
	return problems, skips
}

// polyCase returns the case of output o_key, or why it is not compared.
func polyCase(f *file, key string) (*problem, string) {
	if !f.hasArray("q", "k", "v") {
		return nil, "no q, k, v"
	}
	tau := f.hasArray("tau")
	match := paperCase.FindStringSubmatch(key)
	switch {
	case tau && (key == "direct" || key == "efficient"):
		return taylorshiftProblem(f, key, ""), ""
	case tau && key == "causal":
		return taylorshiftProblem(f, key, "_causal"), ""
	case tau && key == "outnorm":
		return outnormProblem(f), ""
	case match != nil:
		return paperProblem(f, match), ""
	case key == "last" && f.hasArray("x1", "x2", "x3", "y1", "y2", "y3"):
		return stateProblem(f), ""
	case key == "softmax_full" || key == "softmax_causal":
		return softmaxProblem(f, key), ""
	}
	if match := dropCase.FindStringSubmatch(key); match != nil {
		return dropoutProblem(f, match), ""
	}
	if match := kernelCase.FindStringSubmatch(key); match != nil && !strings.Contains(key, "_ascoded") {
		return kernelProblem(f, key, match), ""
	}
	return nil, polyReason(key)
}

// polyReason says why no mechanism here computes the case.
func polyReason(key string) string {
	switch {
	case strings.Contains(key, "_ascoded"):
		return "a defect of the authors' program, not its formula"
	}
	return "no mechanism here computes it"
}

// newProblem reads what all cases of the format share.
func newProblem(r *reader, name string) *problem {
	return &problem{
		name:      name,
		call:      oracle.Call{Q: r.heads("q"), K: r.heads("k"), V: r.heads("v")},
		tolerance: byCondition{},
	}
}

// gradients reads do and the gradients of the case, if the file has them.
func (p *problem) gradients(r *reader, do string, arrays map[string]string) {
	if !r.f.hasArray(do) {
		return
	}
	for _, what := range []string{"dq", "dk", "dv", "dtau", "dlog_g"} {
		if name, named := arrays[what]; named && r.f.hasArray(name) {
			p.want = append(p.want, expect{name, what, r.floats(name)})
			if p.do.Data == nil {
				p.do = r.heads(do)
			}
		}
	}
}

// result adds an array that the file may hold.
func (p *problem) result(r *reader, what, name string) {
	if r.f.hasArray(name) {
		p.want = append(p.want, expect{name, what, r.floats(name)})
	}
}

// finish completes p from the reader: its error, and every form by default.
func (p *problem) finish(r *reader) *problem {
	p.err = r.err
	if p.forms == nil {
		p.forms = p.everyForm()
	}
	return p
}

func paperProblem(f *file, match []string) *problem {
	key, kind := match[0], match[2]
	order, _ := strconv.Atoi(match[1]) // one or two digits
	r := &reader{f: f}
	p := newProblem(r, key)
	p.mechanism, p.options = "fastmax", mechanism.Options{Order: order}
	p.book = oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(order)}
	switch kind {
	case "causal", "causal_offset":
		p.call.Causal = true
	case "keymask":
		p.call.KeyMask = r.bools("keymask")
	}
	p.result(r, "o", "o_"+key)
	p.result(r, "den", "g_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq_" + key, "dk": "dk_" + key, "dv": "dv_" + key})
	return p.finish(r)
}

func taylorshiftProblem(f *file, key, suffix string) *problem {
	r := &reader{f: f}
	p := newProblem(r, key)
	tau := r.floats("tau")
	p.mechanism, p.options = "taylorshift", mechanism.Options{Heads: len(tau)}
	p.book = oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Tau: tau, Coef: oracle.TaylorCoef(2)}
	p.call.Causal = key == "causal"
	p.tolerance = byCondition{maxOnly: true}
	p.result(r, "o", "o_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq" + suffix, "dk": "dk" + suffix, "dv": "dv" + suffix, "dtau": "dtau" + suffix})
	return p.finish(r)
}

// outnormProblem is the case of outputs multiplied by √(N/d). A file may hold the
// outputs of the first queries only.
func outnormProblem(f *file) *problem {
	p := taylorshiftProblem(f, "outnorm", "_outnorm")
	p.options.Set = map[string]string{"output_norm": "true"}
	p.book.OutputNorm = true
	r := &reader{f: f, err: p.err}
	if n := r.heads("o_outnorm").N; r.err == nil && n < p.call.Q.N {
		p.call.Q = p.call.Q.Tokens(0, n)
	}
	p.err = r.err
	return p
}

func softmaxProblem(f *file, key string) *problem {
	r := &reader{f: f}
	p := newProblem(r, key)
	p.mechanism = "softmax"
	p.book = oracle.Mechanism{Exp: true}
	p.call.Causal = key == "softmax_causal"
	p.tolerance = byCondition{maxOnly: true}
	p.result(r, "o", "o_"+key)
	p.gradients(r, "do", map[string]string{"dq": "dq_" + key, "dk": "dk_" + key, "dv": "dv_" + key})
	return p.finish(r)
}

// stateProblem is the causal result of the last query over every key, and the
// moments of the keys.
func stateProblem(f *file) *problem {
	r := &reader{f: f}
	p := newProblem(r, "last")
	p.mechanism, p.options = "fastmax", mechanism.Options{Order: 2}
	p.book = oracle.Mechanism{Norm: oracle.Standard, Scale: 1, Coef: oracle.TaylorCoef(2)}
	p.call.Causal = true
	if n := p.call.Q.N; r.err == nil && n > 0 {
		p.call.Q = p.call.Q.Tokens(n-1, n)
	}
	p.result(r, "o", "o_last")
	p.result(r, "den", "g_last")
	p.moments = fastmaxMoments(r)
	p.forms = append(p.everyForm(), "state")
	return p.finish(r)
}
